"""The masking strategy `ngram`: the shares of its lengths, whole words, and what is left where no long n-gram fits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contracts.cases import MaskingCase
from tests.contracts.material import selected
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import generator
from workbench.sequences.maskings import NgramMasking
from workbench.sequences.sequence import Sequence, text_fields

CASES = {
    "unilm": MaskingCase({"lengths": [8, 1, 1]}),
    "albert": MaskingCase({"lengths": [6, 3, 2], "unit": "word"}),
}


def sequence(words: list[int]) -> Sequence:
    """A text whose words have so many tokens each, between two special tokens."""
    ids = np.concatenate([[-1], np.repeat(np.arange(len(words)), words), [-1]])
    return Sequence({"text": text_fields(np.arange(len(ids)), word_ids=ids, special=ids < 0)}, (0,))


def bounded(count: int, total: int, share: float) -> bool:
    return abs(count - share * total) < 4 * np.sqrt(share * (1 - share) * total)


@pytest.mark.parametrize("unit", ["token", "word"])
def test_lengths_have_their_shares(unit: str) -> None:
    masking, text = NgramMasking([8, 1, 1], unit), sequence([1, 2, 1, 3] * 100)  # type: ignore[arg-type]
    words = text.streams["text"]["word_ids"]
    found: list[int] = []
    for number in range(60):
        groups = selected(masking, text, "text", 0.15, generator(number))[:-1]  # the budget may end the last one
        found += [len(np.unique(words[rows])) if unit == "word" else len(rows) for rows in groups]
        for rows in groups:
            assert np.array_equal(rows, np.arange(rows[0], rows[-1] + 1))
            if unit == "word":
                assert all(np.isin(np.flatnonzero(words == word), rows).all() for word in words[rows])
    assert len(found) > 1000
    for length, share in ((1, 0.8), (2, 0.1), (3, 0.1)):
        assert bounded(found.count(length), len(found), share), (length, found.count(length), len(found))


def test_n_grams_begin_anywhere_alike() -> None:
    text, counts = sequence([1] * 20), np.zeros(22, np.int64)
    for number in range(4000):
        first = selected(NgramMasking([0, 0, 1]), text, "text", 0.15, generator(number))[0]
        counts[first[0]] += 1
    assert counts[[0, 19, 20, 21]].sum() == 0
    assert all(bounded(count, 4000, 1 / 18) for count in counts[1:19])


def test_where_no_long_n_gram_is_left_shorter_ones_are_taken() -> None:
    text = sequence([1] * 6)
    text.streams["text"]["taken"][[3, 6]] = True  # pairs and single tokens are left
    groups = selected(NgramMasking([0, 0, 0, 1]), text, "text", 1.0, generator(0))
    assert sorted(rows.tolist() for rows in groups) == [[1, 2], [4, 5]]


def test_a_length_must_have_a_weight() -> None:
    with pytest.raises(WorkbenchError, match="at least one is above 0"):
        NgramMasking([0, 0])
