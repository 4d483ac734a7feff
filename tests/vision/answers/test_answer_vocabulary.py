"""Soft labels of a question's answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vision.answers.answer_vocabulary import AnswerVocabulary, usual_count
from vision.metrics.vqa_accuracy import accuracy, variant_of
from workbench.core.errors import WorkbenchError

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
    assert VOCABULARY.targets(["chair"] * 2 + [""] * 8).tolist() == [np.float32(0.6), 0.0, 0.0], "blanks are annotators"


def test_the_default_frequency_follows_the_size_of_the_set() -> None:
    """VQA v2's published 9 is that of 658,111 questions; of a small set it would drop most answers."""
    assert [usual_count(size) for size in (0, 999, 1_000, 99_999, 100_000, 658_111)] == [1, 1, 3, 3, 9, 9]
    few = [{"answers": [answer]} for answer in ("dog", "dog", "cat")]
    assert AnswerVocabulary.build(few).answers == ("dog", "cat")
    more = [{"answers": [f"{number // 4} dogs"]} for number in range(999)] + few[1:]
    assert AnswerVocabulary.build(more).answers == AnswerVocabulary.build(more, min_count=3).answers
    assert "dog" not in AnswerVocabulary.build(more).answers


def test_frequencies_are_mean_scores_that_are_neither_0_nor_1() -> None:
    vocabulary = AnswerVocabulary(("yes", "no", "red"))
    asked = [{"answers": ["yes"] * 10}, {"answers": ["yes"] * 7 + ["no"] * 3}]
    assert vocabulary.frequencies(asked) == pytest.approx([2.5 / 3, 1.4 / 3, 0.5 / 3], rel=1e-3)
    assert vocabulary.frequencies([]) == [0.5, 0.5, 0.5]


def test_one_question_does_not_change_the_rule_of_all() -> None:
    ten, several, one = {"answers": ["yes"] * 10}, {"answers": ["a", "b"]}, {"answers": ["c"]}
    assert variant_of([ten, ten]) == "official_2015"
    assert variant_of([ten] * 99 + [one]) == "official_2015"
    assert variant_of([several, *[one] * 9]) == "single_answer", "DAQUAR: nine of ten have one answer"
    assert variant_of([*[one] * 99, ten]) == "single_answer"


def test_what_is_read_keeps_its_signs() -> None:
    """VQA's normal form would make 1893 of a date, which ANLS then holds against it."""
    questions = [{"answers": ["1/8/93", "January  8"]}, {"answers": ["$1,200.50"]}, {"answers": ["The End"]}]
    read = AnswerVocabulary.build(questions, min_count=1, form="plain")
    assert set(read.answers) == {"1/8/93", "$1,200.50", "the end"}
    assert read.ceiling(questions, "anls") == 100
    assert [read.targets(q["answers"], all_right=True).sum() for q in questions] == [1, 1, 1]
    spoken = AnswerVocabulary.build(questions, min_count=1)
    assert spoken.ceiling(questions, "anls") < 90
    assert read.without_blanks() == read


def test_no_class_is_blank(tmp_path: Path) -> None:
    """Older corpora hold blank answers, and of "a" the normal form leaves nothing."""
    given = [{"answers": ["", " ", "dog"]}, {"answer": " ", "answers": ["dog"]}, {"answers": [""]}, {"answers": ["a"]}]
    assert AnswerVocabulary.build(given, min_count=1).answers == ("dog",)
    with pytest.raises(WorkbenchError, match="no answer is the main one of 1 questions"):
        AnswerVocabulary.build(given[2:], min_count=1)
    published = tmp_path / "trainval_label2ans.json"
    published.write_text('["", "woods", "net"]')
    assert AnswerVocabulary.load(published).answers == ("", "woods", "net"), "the classes of published weights"
    assert AnswerVocabulary.load(published).without_blanks().answers == ("woods", "net")
