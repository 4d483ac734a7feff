"""Token masking (BART, arXiv:1910.13461, section 2.2): A B C D E -> A _ C _ E."""

from __future__ import annotations

import numpy as np

from workbench.options.bounds import SomeShare
from workbench.sequences.protocols import Noise
from workbench.sequences.selection import Selection
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer


class Mask(Noise):
    """Token masking (BART, arXiv:1910.13461, section 2.2): A B C D E -> A _ C _ E. Random tokens become the mask token.

    Args:
        rate: share of the free tokens.
    """

    def __init__(self, tokenizer: Tokenizer, rate: SomeShare) -> None:
        self.rate = rate
        self.mask_id = tokenizer.id("mask")

    def __call__(self, sequence: Sequence, stream: str, rng: np.random.Generator) -> None:
        text = sequence.fields(stream)
        for rows in Selection(sequence, stream, self.rate, rng).take_tokens(rng):
            text["input_ids"][rows] = self.mask_id
            text["taken"][rows] = True
