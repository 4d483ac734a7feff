"""What becomes of tokens to be predicted (BERT, arXiv:1810.04805, section 3.1): a mask token, another one, itself."""

from __future__ import annotations

import numpy as np

from workbench.errors import WorkbenchError
from workbench.sequences.sequence import Fields
from workbench.text.tokenizer import Tokenizer


class Replacing:
    """Puts mask tokens and random ordinary tokens in the place of tokens.

    Args:
        mask, random: shares of the tokens that become a mask token and a random one; the rest stays.

    Raises:
        WorkbenchError: the shares are more than all, or the tokenizer has no `mask` token.
    """

    def __init__(self, tokenizer: Tokenizer, mask: float, random: float) -> None:
        if mask + random > 1 + 1e-9:
            raise WorkbenchError(
                f"mask = {mask}, random = {random}; allowed: shares of at most 1 together (the rest of the "
                "selected tokens stays as it is)"
            )
        self.mask, self.random = mask, random
        self.mask_id = tokenizer.id("mask")
        self.ordinary = tokenizer.ordinary_ids

    def __call__(self, fields: Fields, rows: np.ndarray, draw: np.ndarray, rng: np.random.Generator) -> None:
        """Replace the tokens of these rows, in place, and set their `taken`.

        Args:
            draw: a number from 0 to 1 for each row, which decides what becomes of it.
        """
        masked = draw < self.mask
        swapped = ~masked & (draw < self.mask + self.random)
        fields["input_ids"][rows[masked]] = self.mask_id
        fields["input_ids"][rows[swapped]] = self.ordinary[rng.integers(len(self.ordinary), size=int(swapped.sum()))]
        fields["taken"][rows] = True
