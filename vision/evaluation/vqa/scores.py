"""The numbers of predicted answers, the same for a run's and for those of baselines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vision.answers.metric import VqaResult, evaluate_vqa, majority_baseline, normalise
from vision.answers.vocabulary import AnswerVocabulary
from vision.metrics.wordnet import Nouns
from vision.metrics.wups import THRESHOLDS, Measure, alike, equal, wups
from workbench.evaluation.opening import Evaluated

Questions = Sequence[dict[str, Any]]
QUESTION_TYPE, FIRST_WORDS = "question_type", "first two words"


class Scorer:
    """How answers are scored.

    Args:
        variant: of the accuracy (`vision.answers.metric`).
        wordnet: the folder of WordNet for the scores over sets of answers, which are not measured without.
    """

    def __init__(self, variant: str, wordnet: Path | None = None) -> None:
        self.variant = variant
        self.of_sets: dict[str, Measure] = {}
        if wordnet is not None:
            nouns = Nouns(wordnet)
            self.of_sets = {"set_accuracy": equal, **{f"wups/{t}": alike(nouns, t) for t in THRESHOLDS}}

    def accuracies(self, predictions: Mapping[Any, str], questions: Questions) -> VqaResult:
        """The accuracies of the questions' predictions; there may be others."""
        mine = {question["question_id"]: predictions[question["question_id"]] for question in questions}
        return evaluate_vqa(mine, questions, self.variant)

    def numbers(self, predictions: Mapping[Any, str], questions: Questions) -> dict[str, float]:
        """All numbers in per cent, the accuracy first."""
        numbers = self.accuracies(predictions, questions).numbers()
        pairs = [({normalise(predictions[q["question_id"]])}, {*map(normalise, q["answers"])}) for q in questions]
        sets = {
            name: 100 * sum(wups(mine, true, measure) for mine, true in pairs) / len(pairs)
            for name, measure in self.of_sets.items()
        }
        return {"accuracy": numbers.pop("accuracy"), **sets, **numbers}


def baselines(
    run: Evaluated, vocabulary: AnswerVocabulary, questions: Questions, scorer: Scorer
) -> dict[str, dict[str, float]]:
    """The training set's most frequent answer, overall and per question type; the best that the vocabulary allows.

    Questions without a type are told apart by their first two words, which is what VQA's types are made of.
    """
    found = {"best of the vocabulary": {"accuracy": vocabulary.ceiling(questions, scorer.variant)}}
    trained = run.trained_on()
    if trained is None:
        return found
    training = [q for sample in trained for q in sample.get("questions", ()) if q["answers"]]
    typed = all(QUESTION_TYPE in question for question in (*questions, *training))
    kind = QUESTION_TYPE if typed else FIRST_WORDS
    for name, by in (("majority answer", None), (f"majority answer per {kind.replace('_', ' ')}", kind)):
        predictions = majority_baseline(_opened(training), _opened(questions), by)
        found[name] = scorer.numbers(predictions, questions)
    return found


def _opened(questions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The questions with their first two words."""
    return [{**q, FIRST_WORDS: " ".join(q["question"].lower().split()[:2])} for q in questions]
