"""Whole words: all tokens of a word or none (BERT's whole-word masking)."""

from __future__ import annotations

import numpy as np

from workbench.sequences import Sequence
from workbench.text.protocols import Policy
from workbench.text.selection import Selection, shuffled_words


class WholeWord(Policy):
    """A word is what the tokenizer's pre-tokenizer separates (`word_ids`)."""

    def __call__(self, sequence: Sequence, rate: float, rng: np.random.Generator) -> list[np.ndarray]:
        """Groups of token rows, one per word, in the order selected."""
        selection = Selection(sequence, rate, rng)
        return selection.take(shuffled_words(selection, rng))
