"""Whole words, those with a polarity more often than the others (SentiLR, arXiv:1911.02493).

Words of a single supersense first (SenseBERT, arXiv:1908.05646, section 3.5): they teach contexts without doubt.

Half of such words of a sequence are selected, as long as they fill less than 40 % of what may be selected; the rest are
tokens at random.
"""

from __future__ import annotations

from collections.abc import Sequence as Listing

import numpy as np

from kg.graph.shuffle import FALSE_FACTS
from kg.lexicons.sentiment_lexicon import NEUTRAL
from kg.lexicons.supersense_table import read_supersenses
from workbench.core.keyed import Numbers
from workbench.core.options.bounds import Location, Name, Seed, Share, SomeShare
from workbench.sequences.protocols import Masking
from workbench.sequences.selection import RowGroups, Selection, whole_words
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

    def __call__(self, sequences: Listing[Sequence], stream: str, rate: float, numbers: Numbers) -> RowGroups:
        """Groups of token rows, one per word, those with a polarity first."""
        selection = Selection(sequences, stream, rate, numbers)
        words = selection.shuffled_words()
        felt = np.zeros(len(words), np.bool_)
        if all("polarity_ids" in fields for fields in selection.fields):
            felt = selection.column("polarity_ids")[words.rows[words.begins]] != NEUTRAL
        for share, wanted in ((self.sentiment, True), (rate, False)):
            some = words.chosen(felt == wanted)
            sizes = np.bincount(some.of, some.sizes, len(selection.left))
            selection.left = selection.rounded(share * sizes)
            selection.take(some)
        selection.left = np.where(selection.selected, 0, 1)
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

    def __call__(self, sequences: Listing[Sequence], stream: str, rate: float, numbers: Numbers) -> RowGroups:
        """Groups of one token row each, the words of one supersense first."""
        selection = Selection(sequences, stream, rate, numbers)
        whole = np.concatenate([np.zeros(0, np.bool_), *map(whole_words, selection.fields)])
        among = selection.free & self.single[selection.column("input_ids")] & whole
        wanted = np.round(self.share * selection.counted(np.flatnonzero(among)))
        most = np.minimum(wanted, self.most * selection.left).astype(np.int64)
        selection.take_tokens(among, most)
        selection.take_tokens()
        return selection.groups
