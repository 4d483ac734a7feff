"""Windows over long texts, and the words in them."""

from __future__ import annotations

import numpy as np

from workbench.sequences.segments import begins, fullest, words_of
from workbench.text.tokenizer import Encoding


def test_windows_cover_and_stop_at_the_end() -> None:
    for length in range(30):
        found = begins(length, 7, 3)
        assert found[0] == 0
        assert found[-1] + 7 >= length
        assert len(found) == 1 or found[-2] + 7 < length


def test_rows_are_read_where_their_poorer_side_is_richest() -> None:
    windows = [(0, 6), (3, 9), (6, 10)]
    assert fullest(np.arange(10), windows, 10).tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 2, 2]
    assert fullest(np.arange(3), [(0, 3)], 3).tolist() == [0, 0, 0]


def test_words_of_one_character_are_one_and_spaces_are_none() -> None:
    """One half becomes three words of the same place, an accent is a token, a space one of no place."""
    words, starts, ends = [0, 1, 1, 2, 3, 4, 4], [0, 2, 3, 5, 6, 6, 6], [1, 3, 5, 5, 7, 7, 9]
    encoded = Encoding(*(np.array(column) for column in (range(7), words, starts, ends)))
    firsts, places = words_of(encoded)
    assert firsts.tolist() == [0, 1, 4]
    assert places.tolist() == [[0, 1], [2, 5], [6, 9]]
    firsts, places = words_of(encoded.part(0, 0))
    assert (firsts.shape, places.shape) == ((0,), (0, 2))
