"""The scores of predicted answers, of a run and of baselines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vision.answers.answer_vocabulary import AnswerVocabulary
from vision.metrics.vqa_accuracy import (
    VqaResult,
    accuracy,
    can_score,
    evaluate_vqa,
    form_of,
    majority_baseline,
    measure_of,
    normalise,
)
from vision.metrics.wordnet import Nouns
from vision.metrics.wups import THRESHOLDS, Measure, alike, equal, wups
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.passes import sample_pass
from workbench.metrics.tallies import Tally

Questions = Sequence[dict[str, Any]]
OCR = "ocr_tokens"
BOUNDS = ("best of the vocabulary", "best of the words read in the image")
"""Baselines that are upper bounds for runs with this vocabulary, or for runs that only copy words of the image."""
QUESTION_TYPE, FIRST_WORDS = "question_type", "first two words"


class Scorer:
    """The rules of scoring answers.

    Args:
        variant: of the accuracy, or anls (`vision.metrics.vqa_accuracy`).
        wordnet: WordNet's folder for the scores over sets of answers; without it they are not computed.
    """

    def __init__(self, variant: str, wordnet: Path | None = None) -> None:
        self.variant = variant
        self.of_sets: dict[str, Measure] = {}
        if wordnet is not None:
            nouns = Nouns(wordnet)
            self.of_sets = {"set_accuracy": equal, **{f"wups/{t}": alike(nouns, t) for t in THRESHOLDS}}

    def accuracies(self, predictions: Mapping[Any, str], questions: Questions) -> VqaResult:
        """The accuracies of the questions' predictions; further predictions are ignored."""
        mine = {question["question_id"]: predictions[question["question_id"]] for question in questions}
        return evaluate_vqa(mine, questions, self.variant)

    def numbers(self, predictions: Mapping[Any, str], questions: Questions) -> dict[str, float]:
        """All numbers in per cent, the accuracy (or anls) first."""
        numbers = self.accuracies(predictions, questions).numbers()
        name = measure_of(self.variant)
        pairs = [
            ({normalise(predictions[q["question_id"]])}, {normalise(a) for a in q["answers"] if a.strip()})
            for q in questions
        ]
        sets = {
            name: 100 * sum(wups(mine, true, measure) for mine, true in pairs) / len(pairs)
            for name, measure in self.of_sets.items()
        }
        return {name: numbers.pop(name), **sets, **numbers}

    def tallies(
        self, predictions: Mapping[Any, str], asked: Iterable[dict[str, Any]], found: Mapping[Any, float]
    ) -> dict[str, Tally]:
        """The contribution of each question to the numbers, except those of groups; questions without a score are left
        out.

        Args:
            found: the accuracy of each scored question, 0..1.
        """
        every = list(asked)
        known = [question["question_id"] in found for question in every]
        each = {measure_of(self.variant): [found.get(question["question_id"], 0.0) for question in every]}
        for name, measure in self.of_sets.items():
            pairs = [
                ({normalise(predictions[q["question_id"]])}, {normalise(a) for a in q["answers"] if a.strip()})
                for q in every
            ]
            each[name] = [wups(*pair, measure) if of else 0.0 for pair, of in zip(pairs, known, strict=True)]
        whole = {"set_accuracy", *(["accuracy"] if self.variant == "single_answer" else [])}  # right or wrong, no more
        return {
            name: Tally("percentage", Tally.share(values, known).rows)
            if name in whole
            else Tally.mean([100 * x for x in values], known)
            for name, values in each.items()
        }


def baselines(
    run: EvaluatedRun, corpus: Corpus, vocabulary: AnswerVocabulary | None, questions: Questions, scorer: Scorer
) -> dict[str, dict[str, float]]:
    """Baselines: the training set's most frequent answer, overall and per question type; the best answer of the
    vocabulary, if the run has one; the best of the words that were read in the image, if the corpus has them
    (`ocr_tokens`).

    Questions without a type are grouped by their first two words, from which VQA's types are built.
    """
    name = measure_of(scorer.variant)
    found = {BOUNDS[0]: {name: vocabulary.ceiling(questions, scorer.variant)}} if vocabulary else {}
    if OCR in corpus.manifest.fields:
        found[BOUNDS[1]] = {name: best_of_words(corpus, questions, scorer.variant)}
    trained = run.trained_on()
    if trained is None:
        return found
    training = [q for sample in trained for q in sample.get("questions", ()) if q["answers"]]
    typed = all(QUESTION_TYPE in question for question in (*questions, *training))
    kind = QUESTION_TYPE if typed else FIRST_WORDS
    for name, by in (("majority answer", None), (f"majority answer per {kind.replace('_', ' ')}", kind)):
        predictions = majority_baseline(_opened(training), _opened(questions), by, form_of(scorer.variant))
        found[name] = scorer.numbers(predictions, questions)
    return found


def best_of_words(corpus: Corpus, questions: Questions, variant: str) -> float:
    """The score (per cent) of answering each question with the best single word of its image."""
    asked = {question["question_id"]: question for question in questions if can_score(question, variant)}
    best = dict.fromkeys(asked, 0.0)
    for samples in sample_pass([corpus], size=256, unit=None):
        for sample in samples:
            words = list(dict.fromkeys(sample.get(OCR, ())))
            for question in sample.get("questions", ()):
                name = question["question_id"]
                if name in asked:
                    reached = (accuracy(word, asked[name]["answers"], variant) for word in words)
                    best[name] = max(reached, default=0.0)
    return 100 * sum(best.values()) / len(best)


def _opened(questions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The questions with their first two words."""
    return [{**q, FIRST_WORDS: " ".join(q["question"].lower().split()[:2])} for q in questions]
