"""VQA accuracy against the numbers of the official script, and the answer vocabulary."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from vision.answers.answer_vocabulary import AnswerVocabulary
from vision.metrics.vqa_accuracy import (
    accuracy,
    compared,
    contractions,
    evaluate_vqa,
    major_answer,
    majority_baseline,
    match_score,
    normalise,
    without_marks,
)
from workbench.core.errors import WorkbenchError


@pytest.fixture(scope="module")
def golden(shared: Path) -> Path:
    return shared / "golden" / "vqa_metric"


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def predictions(path: Path) -> dict[int, str]:
    return {r["question_id"]: r["answer"] for r in read(path)}


@pytest.mark.parametrize("name", ["mixed", "canonical", "surface_noise", "always_yes"])
def test_official_numbers(golden: Path, name: str) -> None:
    questions = read(golden / "annotations.json")["annotations"]
    expected = read(golden / f"expected_{name}.json")
    result = evaluate_vqa(predictions(golden / f"results_{name}.json"), questions)
    assert result.variant == "official_2015"
    assert round(result.overall, 10) == pytest.approx(expected["overall_10_decimals"], abs=1e-9)
    assert {k: round(v, 2) for k, v in result.per_question_type.items()} == expected["perQuestionType"]
    assert {k: round(v, 2) for k, v in result.per_answer_type.items()} == expected["perAnswerType"]
    for question, numbers in expected["perQuestion"].items():
        found = 100 * result.accuracies[int(question)]
        assert found == pytest.approx(numbers["accuracy_10_decimals"], abs=1e-8), question


def test_entries_without_ids_follow_the_script(golden: Path) -> None:
    folder = golden / "no_answer_id"
    questions = read(folder / "annotations.json")["annotations"]
    expected = read(folder / "expected.json")
    result = evaluate_vqa(predictions(folder / "results.json"), questions)
    assert round(result.overall, 2) == expected["overall"]
    assert {str(q): round(100 * a, 2) for q, a in result.accuracies.items()} == expected["perQuestion"]


def test_plain_strings_equal_entries_with_ids(golden: Path) -> None:
    questions = read(golden / "annotations.json")["annotations"]
    plain = [{**q, "answers": [a["answer"] for a in q["answers"]]} for q in questions]
    given = predictions(golden / "results_mixed.json")
    assert evaluate_vqa(given, plain).accuracies == evaluate_vqa(given, questions).accuracies


def test_official_normal_forms(golden: Path) -> None:
    for case in read(golden / "normalisation.json"):
        assert (
            without_marks(" ".join(case["input"].splitlines()).replace("\t", " ").strip()) == case["after_punctuation"]
        ), case
        assert normalise(case["input"]) == case["output"], case
    for line in (golden / "words.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        word, output = line.split("\t")
        assert normalise(word) == output, word


def test_official_ground_truth(golden: Path) -> None:
    """The annotators' answers as the script compares them."""
    questions = read(golden / "annotations.json")["annotations"]
    expected = read(golden / "processed_ground_truth.json")
    assert len(questions) == len(expected)
    for question in questions:
        known, wanted = expected[str(question["question_id"])], [a["answer"] for a in question["answers"]]
        assert compared(wanted, "The Answer", "official_2015")[0] == known["answers"], question
        assert (len({a.strip() for a in wanted}) > 1) == known["preprocessed"]


def test_identical_answers_are_not_normalised_unless_asked() -> None:
    assert accuracy("Yes", ["yes"] * 10) == 0
    assert accuracy("Yes", ["yes"] * 10, "always_normalise") == 1
    assert accuracy("Yes", ["yes"] * 9 + ["no"]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("prediction", "answers", "early", "today"),
    [
        ("Yes", ["yes"] * 10, 1, 0),  # ten alike: the prediction is normalised, or neither
        ("two", ["two"] * 10, 0, 1),
        ("two", ["2"] * 10, 1, 0),
        ("two", ["2"] * 3 + ["two"] * 7, 0.9, 1),  # the numbers of answers stay words
        ("a dog", ["a dog"] * 9 + ["dog"], 0.3, 1),  # and their articles
        ("wi-fi", ["wi fi"] * 5 + ["wi-fi"] * 5, 1, 1),  # their punctuation goes
        ("red", ["red"] * 5 + ["Red"] * 5, 1, 1),
        ("red", ["Red"] * 9 + ["red"], 0.3, 1),  # their capitals stay
    ],
)
def test_the_early_script(prediction: str, answers: list[str], early: float, today: float) -> None:
    assert accuracy(prediction, answers, "early_script") == pytest.approx(early)
    assert accuracy(prediction, answers) == pytest.approx(today)


@pytest.mark.parametrize(("matches", "expected"), [(0, 0), (1, 0.3), (2, 0.6), (3, 0.9), (4, 1), (10, 1)])
def test_closed_form(matches: int, expected: float) -> None:
    answers = ["cat"] * matches + [f"dog{i}" for i in range(10 - matches)]
    assert match_score(matches, 10) == pytest.approx(expected)
    assert accuracy("cat", answers) == pytest.approx(expected)


def test_sets_with_one_answer_say_so() -> None:
    questions = [
        {"question_id": 1, "answers": ["two"], "question_type": "count"},
        {"question_id": 2, "answers": ["red"], "question_type": "colour"},
    ]
    result = evaluate_vqa({1: "2", 2: "blue"}, questions)
    assert (result.variant, result.overall) == ("single_answer", 50)
    assert result.numbers() == {
        "accuracy": 50,
        "accuracy/question_type/colour": 0,
        "accuracy/question_type/count": 100,
    }
    with pytest.raises(WorkbenchError, match="single_answer"):
        evaluate_vqa({1: "2", 2: "blue"}, questions, "official_2015")


def test_a_set_with_some_single_answers_is_scored_by_equality() -> None:
    questions = [{"question_id": 1, "answers": ["table"]}, {"question_id": 2, "answers": ["lamp", "chair"]}]
    result = evaluate_vqa({1: "bed", 2: "chair"}, questions)
    assert (result.variant, result.overall, result.left_out) == ("single_answer", 50, [])
    official = evaluate_vqa({1: "bed", 2: "chair"}, questions, "official_2015")
    assert (official.overall, official.left_out) == (pytest.approx(100 / 6), [1])
    with pytest.raises(WorkbenchError, match=r"variant 'official_2015' compares .*--variant"):
        evaluate_vqa({1: "bed"}, questions[:1], "official_2015")


def by_the_published_rule(prediction: str, answers: list[str]) -> float:
    """Each annotator is left out in turn: min(1, how many of the others said so / 3), the mean over annotators."""
    shares = []
    for left_out in range(len(answers)):
        others = [answer for place, answer in enumerate(answers) if place != left_out]
        shares.append(min(1.0, sum(answer == prediction for answer in others) / 3))
    return sum(shares) / len(shares)


def test_blank_answers_are_those_of_annotators() -> None:
    """Words that the normal form leaves as they are, and blanks, next to the rule written down again."""
    draws = random.Random(0)
    for _ in range(300):
        answers = draws.choices(["", "cat", "dog", "red"], k=draws.choice([2, 3, 10, 10, 10]))
        for prediction in ("", "cat", "dog", "bird"):
            assert accuracy(prediction, answers) == pytest.approx(by_the_published_rule(prediction, answers))
    assert accuracy("cat", [""] * 9 + ["cat"]) == pytest.approx(0.3)
    assert accuracy("a", [""] * 8 + ["a", "a"]) == 1, "of an article the normal form leaves nothing, as of a blank"
    assert accuracy("cat", ["", "cat"], "single_answer") == 1
    assert accuracy("the", ["", "cat"], "single_answer") == 0, "a blank is no right answer"


def test_one_question_is_left_out_and_the_rule_stays() -> None:
    questions: list[dict[str, Any]] = [{"question_id": n, "answers": ["yes"] * 3 + ["no"] * 7} for n in range(99)]
    blank = {"question_id": 99, "answers": [""] * 9 + ["cat"]}
    given = dict.fromkeys(range(100), "yes")
    result = evaluate_vqa(given, [*questions, blank])
    assert (result.variant, result.overall) == ("official_2015", pytest.approx(89.1))
    result = evaluate_vqa(given, [*questions, {"question_id": 99, "answers": ["yes"]}])
    assert (result.variant, result.overall, result.left_out) == ("official_2015", pytest.approx(90), [99])
    assert len(result.accuracies) == 99


def test_anls_is_called_by_its_name() -> None:
    questions = [
        {"question_id": 1, "answers": ["Coca Cola", "coca cola company"], "question_type": "table"},
        {"question_id": 2, "answers": ["1,200.50"], "question_type": "form"},
    ]
    result = evaluate_vqa({1: "cofa cola", 2: "7"}, questions, "anls")
    assert result.numbers() == {
        "anls": pytest.approx(50 * 8 / 9),
        "anls/question_type/form": 0,
        "anls/question_type/table": pytest.approx(100 * 8 / 9),
    }


def test_wrong_inputs_are_named() -> None:
    question = {"question_id": 7, "answers": ["a", "b"]}
    with pytest.raises(WorkbenchError, match="1 questions without a prediction"):
        evaluate_vqa({}, [question])
    with pytest.raises(WorkbenchError, match="1 predictions without a question"):
        evaluate_vqa({7: "a", 8: "b"}, [question])
    with pytest.raises(WorkbenchError, match="Did you mean 'official_2015'"):
        evaluate_vqa({7: "a"}, [question], "official")
    with pytest.raises(WorkbenchError, match="question 7 has no answers"):
        evaluate_vqa({7: "a"}, [{"question_id": 7, "answers": []}])
    with pytest.raises(WorkbenchError, match="no questions"):
        evaluate_vqa({}, [])


def test_the_table_has_no_word_that_the_script_leaves_alone() -> None:
    assert not {"its", "hell", "ill", "were", "shell", "well", "id", "shes", "lets"} & contractions().keys()


def test_majority_answer() -> None:
    train = [{"answers": ["yes"], "question_type": "is"}] * 3 + [{"answers": ["red"], "question_type": "what"}] * 2
    asked = [{"question_id": n, "question_type": t} for n, t in enumerate(["is", "what", "how"])]
    assert majority_baseline(train, asked) == {0: "yes", 1: "yes", 2: "yes"}
    assert majority_baseline(train, asked, by="question_type") == {0: "yes", 1: "red", 2: "yes"}


def test_major_answer_prefers_the_given_one() -> None:
    assert major_answer({"answer": "The Cat.", "answers": ["dog"] * 10}) == "cat"
    assert major_answer({"answers": ["Dog", "dog", "Dog"]}) == "dog"


@pytest.mark.parametrize("variant", ["official_2015", "early_script", "always_normalise", "single_answer", "anls"])
def test_the_ceiling_is_what_the_best_classifier_reaches(variant: str) -> None:
    """Sets of right answers too, of which any has full marks under single_answer."""
    vocabulary = AnswerVocabulary(("red", "2", "4"))
    sets = [["red", "blue"], ["2", "four", "red"], ["blue", "green"], ["red", "red", "2"], ["Red", "Red", "Red"]]
    questions = [{"question_id": i, "answers": answers} for i, answers in enumerate(sets)]
    best = [max(accuracy(answer, answers, variant) for answer in vocabulary.answers) for answers in sets]
    assert vocabulary.ceiling(questions, variant) == pytest.approx(100 * sum(best) / len(best))


def test_vocabulary_and_soft_labels(tmp_path: Path) -> None:
    questions = [{"answers": ["Two"] * 3 + ["2"] * 2 + ["four"] * 2 + ["a lot"] * 3, "answer": "2"}] * 4
    questions += [{"answers": ["red"] * 10}] * 5 + [{"answers": ["4"] * 10}] * 2
    vocabulary = AnswerVocabulary.build(questions, min_count=2)
    assert vocabulary.answers == ("red", "2", "4")
    classes, scores = vocabulary.labels(questions[0]["answers"])
    assert classes.tolist() == [1, 2]
    assert scores.tolist() == pytest.approx([1.0, 0.6])
    assert vocabulary.targets(questions[0]["answers"]).tolist() == pytest.approx([0, 1, 0.6])
    assert vocabulary.labels(["blue"])[0].size == 0
    single = [{"answers": ["two"]}, {"answers": ["blue"]}]
    assert vocabulary.ceiling(single, "single_answer") == pytest.approx(50)
    assert vocabulary.ceiling([*questions[:1], {"answers": ["blue"] * 10}], "always_normalise") == pytest.approx(50)
    vocabulary.save(tmp_path / "answers.json")
    assert AnswerVocabulary.load(tmp_path / "answers.json") == vocabulary
    (tmp_path / "twice.json").write_text('["a", "a"]')
    with pytest.raises(WorkbenchError, match="occurs twice"):
        AnswerVocabulary.load(tmp_path / "twice.json")
    with pytest.raises(WorkbenchError, match="lower min_count"):
        AnswerVocabulary.build(questions, min_count=99)


@pytest.mark.data
def test_soft_labels_equal_the_accuracy_of_answering_so(shared: Path) -> None:
    """On real questions: where the annotators disagree, the label of an answer is its official accuracy."""
    lines = (shared / "data" / "vqa_v2" / "questions_dev.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line) for line in lines]
    vocabulary = AnswerVocabulary.build(questions, min_count=1)
    for question in questions:
        for row, score in zip(*vocabulary.labels(question["answers"]), strict=True):
            found = accuracy(vocabulary.answers[row], question["answers"], "always_normalise")
            assert found == pytest.approx(score, abs=1e-6)
