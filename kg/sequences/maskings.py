"""Whole words, those with a polarity more often than the others (SentiLR, arXiv:1911.02493).

Words of a single supersense first (SenseBERT, arXiv:1908.05646, section 3.5): they teach contexts without doubt.

Half of such words of a sequence are selected, as long as they fill less than 40 % of what may be selected; the rest are
tokens at random.
"""

from __future__ import annotations

import numpy as np

from kg.graph.shuffle import FALSE_FACTS
from kg.lexicons.sentiment_lexicon import NEUTRAL
from kg.lexicons.supersense_table import read_supersenses
from workbench.core.options.bounds import Location, Name, Seed, Share, SomeShare
from workbench.sequences.protocols import Masking
from workbench.sequences.selection import Selection, shuffled_words, whole_words
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer


class SentimentWordsMasking(Masking):
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


class SingleSenseMasking(Masking):
    """Masking of SenseBERT: single tokens, and words with one supersense before the others (arXiv:1908.05646, section
    3.5).

    Args:
        tokenizer: given by the recipe.
        senses: file of `workbench prepare supersenses`.
        share: of the words with one supersense that are selected.
        most: the share of the rate that these words may fill.
        control, seed: as for the embedding `kg.sense_token`. Under `no-kg` all tokens are selected at random.
    """

    controls = ("no-kg", *FALSE_FACTS)
    by_words = True

    def __init__(
        self,
        tokenizer: Tokenizer,
        senses: Location,
        share: Share = 0.5,
        most: Share = 0.4,
        control: Name | None = None,
        seed: Seed = 0,
    ) -> None:
        self.single = read_supersenses(senses, tokenizer).under(control, seed).allowed.sum(1) == 1
        self.share, self.most = share, most

    def __call__(self, sequence: Sequence, stream: str, rate: float, rng: np.random.Generator) -> list[np.ndarray]:
        """Groups of one token row each, the words of one supersense first."""
        selection = Selection(sequence, stream, rate, rng)
        fields, rows = sequence.fields(stream), selection.candidates
        rows = rows[self.single[fields["input_ids"][rows]] & whole_words(fields)[rows]]
        wanted = min(round(self.share * len(rows)), int(self.most * selection.left))
        selection.take(rng.permutation(rows)[:wanted, None])
        return selection.take_tokens(rng)
