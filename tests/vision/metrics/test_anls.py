"""Average normalised Levenshtein similarity next to a plain-loop implementation of its definition."""

from __future__ import annotations

import random

import numpy as np
import pytest

from vision.metrics.anls import best_similarities, distances, similarity


def by_loops(a: str, b: str) -> int:
    """Levenshtein (1966) as the textbooks have it: one table, letter by letter."""
    table = [[max(i, j) if 0 in (i, j) else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            change = table[i - 1][j - 1] + (a[i - 1] != b[j - 1])
            table[i][j] = min(table[i - 1][j] + 1, table[i][j - 1] + 1, change)
    return table[-1][-1]


def test_distances_are_those_of_the_plain_table() -> None:
    draws = random.Random(0)
    texts = ["".join(draws.choices("abä 你", k=draws.randrange(9))) for _ in range(60)]
    for text in texts[:20]:
        assert distances(text, texts).tolist() == [by_loops(text, other) for other in texts]
    assert distances("abc", []).tolist() == []
    assert distances("", [""]).tolist() == [0]


@pytest.mark.parametrize(
    ("prediction", "answers", "expected"),
    [
        ("Coca Cola", ["coca cola"], 1),
        ("  coca   cola\n", ["coca cola"], 1),
        ("coca cola", ["coca cola company"], 9 / 17),
        ("coca", ["coca cola"], 0),  # 4 of 9 letters: below the threshold
        ("coca", ["coca col"], 0.5),  # the script keeps what is exactly at it
        ("cofa cola", ["pepsi", "coca cola"], 1 - 1 / 9),
        ("", ["a"], 0),
        ("1,200.50", ["$1,200.50"], 1 - 1 / 9),
    ],
)
def test_the_score_of_a_prediction(prediction: str, answers: list[str], expected: float) -> None:
    assert similarity(prediction, answers) == pytest.approx(expected)


def test_several_predictions_at_once_score_as_alone() -> None:
    said, answers = ["coca", "cola", "coca cola", "", "Pepsi"], ["coca cola", "pepsi co"]
    assert np.array_equal(best_similarities(said, answers), [similarity(one, answers) for one in said])
