"""Single tokens, the rare ones more often than the frequent (XLM, arXiv:1901.07291, section 3.3).

    p(token) ~ frequency ** -exponent

Punctuation and stop words would else be most of what is predicted. The tokens of a sequence are drawn one after another
without replacement; the published code draws them from a whole batch at once.
"""

from __future__ import annotations

import numpy as np

from workbench.options.bounds import Location, SomeShare
from workbench.sequences.protocols import Policy
from workbench.sequences.selection import Selection
from workbench.sequences.sequence import Sequence
from workbench.text.token_counts import read_token_counts
from workbench.text.tokenizer import Tokenizer


class Rare(Policy):
    """Masking of single tokens, rare ones more often than frequent ones (XLM, arXiv:1901.07291, section 3.3). The
    probability is a power of the inverse frequency.

    Args:
        tokenizer: given by the recipe.
        counts: file of `workbench prepare token-counts`; a token that was not found counts as found once.
        exponent: 0.5 is the square root of the inverse frequency.
    """

    def __init__(self, tokenizer: Tokenizer, counts: Location, exponent: SomeShare = 0.5) -> None:
        self.weights = np.maximum(read_token_counts(counts, tokenizer), 1) ** -float(exponent)

    def __call__(self, sequence: Sequence, stream: str, rate: float, rng: np.random.Generator) -> list[np.ndarray]:
        """Groups of token rows, in the order selected."""
        selection = Selection(sequence, stream, rate, rng)
        rows = selection.candidates
        weights = self.weights[sequence.fields(stream)["input_ids"][rows]]
        order = np.argsort(rng.exponential(size=len(rows)) / weights)  # the first of so many clocks: drawn by weight
        return selection.take(rows[order][:, None])
