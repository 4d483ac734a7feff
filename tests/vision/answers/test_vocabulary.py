"""Soft labels of a question's answers."""

from __future__ import annotations

import numpy as np
import pytest

from vision.answers.metric import accuracy, variant_of
from vision.answers.vocabulary import AnswerVocabulary

VOCABULARY = AnswerVocabulary(("chair", "table", "lamp"))


@pytest.mark.parametrize("given", [["chair"], ["chair", "table"], ["lamp", "chair", "table"], ["sofa", "lamp"]])
def test_each_of_a_set_of_right_answers_is_wholly_right(given: list[str]) -> None:
    scores = VOCABULARY.targets(given, all_right=True)
    assert scores.tolist() == [float(answer in given) for answer in VOCABULARY.answers]
    assert scores.tolist() == [accuracy(answer, given, "single_answer") for answer in VOCABULARY.answers]


def test_annotators_are_counted_unless_it_is_said() -> None:
    given = ["chair"] * 3 + ["table"] * 7
    assert VOCABULARY.targets(given).tolist() == [np.float32(0.9), 1.0, 0.0]
    assert VOCABULARY.targets(given, all_right=True).tolist() == [1.0, 1.0, 0.0]


def test_a_set_with_a_single_answer_somewhere_has_no_annotators() -> None:
    ten = {"answers": ["yes"] * 10}
    assert variant_of([ten, ten]) == "official_2015"
    assert variant_of([ten, {"answers": ["a", "b"]}, {"answers": ["c"]}]) == "single_answer"
