"""Exact match and F1 of answers, worked out by hand from SQuAD's rules."""

from __future__ import annotations

import pytest

from workbench.metrics.answers import answer_scores, word_f1, words_of


def test_what_is_passed_over() -> None:
    assert words_of("The  Eiffel-Tower, in a\tcity!") == ["eiffeltower", "in", "city"]
    assert words_of("An") == []
    assert words_of("theatre") == ["theatre"]


def test_f1_of_bags_of_words() -> None:
    assert word_f1("the red red house", "red house on hill") == pytest.approx(2 * 2 / (3 + 4))
    assert word_f1("boat", "house") == 0
    assert word_f1("", "the") == 1
    assert word_f1("", "house") == 0


def test_the_best_right_answer_counts() -> None:
    found = answer_scores(["in May 1990", "blue"], [["1990", "May 1990"], ["red"]])
    assert found == {"exact_match": 0, "f1": pytest.approx((2 * 2 / (3 + 2)) / 2)}
    assert answer_scores(["The boat."], [["house", "boat"]]) == {"exact_match": 1, "f1": 1}


def test_nothing_is_right_where_there_is_no_answer() -> None:
    found = answer_scores(["", "x", ""], [[], [], ["x"]])
    assert found == {"exact_match": pytest.approx(1 / 3), "f1": pytest.approx(1 / 3), "no_answer_accuracy": 0.5}
    with pytest.raises(ValueError, match="no questions"):
        answer_scores([], [])


def test_signs_without_spaces_are_words() -> None:
    assert answer_scores(["北京大学"], [["北京大学。"]]) == {"exact_match": 1, "f1": 1}
    assert word_f1("北京大学图书馆", "北京大学") == pytest.approx(2 * 4 / (7 + 4))
