"""Whole words: all tokens of a word or none (BERT's whole-word masking)."""

from __future__ import annotations

import numpy as np

from workbench.sequences.protocols import Policy
from workbench.sequences.selection import Selection, shuffled_words
from workbench.sequences.sequence import Sequence


class WholeWord(Policy):
    """Whole-word masking: all tokens of a word or none. The tokenizer's pre-tokenizer finds words; in Chinese and
    Japanese, a segmenter does (`segmenter` of the recipe)."""

    by_words = True

    def __call__(self, sequence: Sequence, stream: str, rate: float, rng: np.random.Generator) -> list[np.ndarray]:
        """Groups of token rows, one per word, in the order selected."""
        selection = Selection(sequence, stream, rate, rng)
        return selection.take(shuffled_words(selection, rng))
