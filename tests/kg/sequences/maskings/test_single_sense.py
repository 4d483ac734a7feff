"""The masking strategy `kg.single_sense`: words of one supersense come first, within their share of the rate."""

from __future__ import annotations

import numpy as np

from kg.sequences.maskings import SingleSenseMasking
from tests.contracts.cases import MaskingCase
from tests.contracts.material import selected, tokenizer
from tests.kg.sense_files import sense_file, supersenses
from workbench.core.keyed import generator
from workbench.sequences.sequence import Sequence, text_fields

CASE = MaskingCase({"senses": sense_file()})

SENSES = supersenses().allowed.sum(1)
SINGLE = np.flatnonzero(SENSES == 1)[0]
OTHER = np.flatnonzero(SENSES == 2)[0]


def shares(single: int, others: int, rate: float, word_ids: np.ndarray | None = None) -> float:
    """How many of the words of one supersense are selected, on average."""
    masking = SingleSenseMasking(tokenizer(), sense_file())
    ids = np.array([SINGLE] * single + [OTHER] * others)
    sequence = Sequence({"text": text_fields(ids, word_ids=word_ids)}, ())
    chosen = [np.concatenate(selected(masking, sequence, "text", rate, generator(i))) for i in range(300)]
    assert all(len(rows) == round(rate * len(ids)) for rows in chosen)
    return float(np.mean([(rows < single).sum() for rows in chosen]))


def test_half_of_them_are_selected_before_others_are_drawn() -> None:
    """4 of 100 words: 2 of them, and of the 18 others that are drawn the usual share."""
    assert abs(shares(4, 96, 0.2) - (2 + 18 * 2 / 98)) < 0.15


def test_they_fill_no_more_than_their_share_of_the_rate() -> None:
    """40 of 100 words: 8 of the 20 that are selected, and the rest at random."""
    assert abs(shares(40, 60, 0.2) - (8 + 12 * 32 / 92)) < 0.4


def test_parts_of_words_are_no_words_of_one_supersense() -> None:
    words = np.repeat(np.arange(50), 2)
    assert abs(shares(4, 96, 0.2, words) - 20 * 0.04) < 0.2
