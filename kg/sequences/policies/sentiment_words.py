"""Whole words, those with a polarity more often than the others (SentiLR, arXiv:1911.02493)."""

from __future__ import annotations

import numpy as np

from kg.lexicons.sentiment import NEUTRAL
from workbench.options.bounds import SomeShare
from workbench.sequences.protocols import Policy
from workbench.sequences.selection import Selection, shuffled_words
from workbench.sequences.sequence import Sequence


class SentimentWords(Policy):
    """Whole-word masking of SentiLR, with another rate for words that have a polarity (arXiv:1911.02493). The transform
    kg.sentiment writes the polarity (`polarity_ids`).

    Args:
        sentiment: the share of the tokens of words with a polarity; that of the others is the objective's rate.
    """

    by_words = True

    def __init__(self, sentiment: SomeShare = 0.3) -> None:
        self.sentiment = sentiment

    def __call__(self, sequence: Sequence, stream: str, rate: float, rng: np.random.Generator) -> list[np.ndarray]:
        """Groups of token rows, one per word, those with a polarity first."""
        selection = Selection(sequence, stream, rate, rng)
        words = list(shuffled_words(selection, rng))
        polarity = sequence.fields(stream).get("polarity_ids")
        felt = [polarity is not None and polarity[rows[0]] != NEUTRAL for rows in words]
        for share, wanted in ((self.sentiment, True), (rate, False)):
            some = [rows for rows, feels in zip(words, felt, strict=True) if feels == wanted]
            expected = share * sum(map(len, some))
            selection.left = int(expected) + int(rng.random() < expected - int(expected))
            selection.take(some)
        if not selection.groups:
            selection.left = 1
            selection.take(words)
        return selection.groups
