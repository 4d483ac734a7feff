"""A run's answers to the questions of a corpus, and the files of test servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vision.answers.answer_vocabulary import AnswerVocabulary
from vision.metrics.vqa_accuracy import VqaResult
from vision.objectives.answers import Answers, AnswersHead
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import write_text
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.example_images import keep_image
from workbench.evaluation.scoring.passes import forward_pass, sample_pass
from workbench.evaluation.scoring.rank_shares import shared_groups
from workbench.sequences.sequence import Sample

EXAMPLES = 12
_CANDIDATES = 96  # number of questions to choose examples from


class PredictedAnswer(NamedTuple):
    """The answer to one question, and the number of its record in the group."""

    key: str
    meta: dict[str, Any]
    answer: str
    confidence: float
    place: int


Answering = Callable[[list[Sample], int], list[PredictedAnswer]]
"""The answers to the questions of a group of samples, by the group and its number."""


@dataclass
class AnsweredQuestion:
    """By question id: the predicted answer, its probability, the number and the key of the question's record and the
    question itself, in the order of the corpus."""

    predictions: dict[Any, str] = field(default_factory=dict)
    confidence: dict[Any, float] = field(default_factory=dict)
    records: dict[Any, int] = field(default_factory=dict)
    asked: dict[Any, dict[str, Any]] = field(default_factory=dict)
    keys: dict[Any, str] = field(default_factory=dict)
    images: int = 0

    @property
    def scorable(self) -> list[dict[str, Any]]:
        """The questions that have answers."""
        return [question for question in self.asked.values() if question["answers"]]

    def add(self, found: PredictedAnswer) -> None:
        """Add the answers of the next group of records.

        Raises:
            WorkbenchError: the question id exists already.
        """
        name = found.meta["question_id"]
        if name in self.predictions:
            raise WorkbenchError(
                f"the question id {name!r} occurs twice (again in record {found.key!r}), but predictions need unique "
                "ids. "
                "Prepare the corpus again: workbench prepare image-text names the places of duplicate ids, and "
                "--on-error skip keeps only the first. Joined corpora can be evaluated one by "
                "one"
            )
        self.predictions[name], self.confidence[name] = found.answer, found.confidence
        self.records[name], self.asked[name] = self.images + found.place, found.meta
        self.keys[name] = found.key


def predict(
    run: EvaluatedRun, corpus: Corpus, answering: Answering, *, batch_size: int = 32, limit: int | None = None
) -> AnsweredQuestion:
    """The answer to every question, by `answering`; the ranks of `run.world` share the images."""
    answered = AnsweredQuestion()
    groups = sample_pass([corpus], size=batch_size, unit=None, limit=limit)
    for images, found in shared_groups(run.world, groups, lambda number, group: (len(group), answering(group, number))):
        for each in found:
            answered.add(each)
        answered.images += images
    return answered


def answer(run: EvaluatedRun, samples: list[Sample], number: int = 0) -> list[PredictedAnswer]:
    """The most probable answer to each question of the samples, which are the group with this number."""
    head, vocabulary, found = run.head, vocabulary_of(run), []
    assert isinstance(head, AnswersHead)
    assert vocabulary is not None
    places = {str(sample["key"]): place for place, sample in enumerate(samples)}
    for forward in forward_pass(run.network, run.task.sequences, [samples], first=number):
        with torch.inference_mode():
            logits = head.logits(run.network, forward.states, forward.batch).float()
        confidence, best = (of.tolist() for of in _probabilities(logits, head).max(1))
        for one, chosen, sure in zip(forward.sequences, best, confidence, strict=True):
            found.append(PredictedAnswer(one.key, one.meta, vocabulary.answers[chosen], sure, places[one.key]))
    return found


def _probabilities(logits: Tensor, head: AnswersHead) -> Tensor:
    return logits.sigmoid() if head.loss == "bce" else logits.softmax(-1)


def vocabulary_of(run: EvaluatedRun) -> AnswerVocabulary | None:
    """The answers of the run's vocabulary; None where it writes them."""
    objective = run.objective.objective
    return objective.vocabulary if isinstance(objective, Answers) else None


def questions_of(corpus: Corpus) -> Iterator[dict[str, Any]]:
    """The questions of a corpus.

    Raises:
        WorkbenchError: it has none.
    """
    if not corpus.manifest.lengths.get("questions"):
        raise WorkbenchError(
            f"corpus {corpus.name!r} has no questions (it has {', '.join(corpus.manifest.fields)}); prepare one from "
            "questions and answers: workbench prepare image-text"
        )
    for samples in sample_pass([corpus], size=256, unit=None):
        for sample in samples:
            yield from sample.get("questions", [])


def lines_of(answered: AnsweredQuestion) -> list[dict[str, Any]]:
    """Each question as an item, with the probability of its answer; the key is that of the image."""
    return [
        {
            "key": answered.keys[name],
            "question_id": name,
            "gold": list(answered.asked[name]["answers"]),
            "prediction": answer,
            "score": answered.confidence[name],
        }
        for name, answer in answered.predictions.items()
    ]


def write_predictions(path: Path, predictions: Mapping[Any, str]) -> None:
    """Write the results file of the VQA challenge: a JSON list of `{question_id, answer}`, every question once."""
    _write_list(path, ({"question_id": name, "answer": answer} for name, answer in predictions.items()))


def write_gqa_predictions(path: Path, answered: AnsweredQuestion) -> None:
    """Write the results file of the GQA challenge: a JSON list of `{questionId, prediction}`, the ids as strings."""
    given = answered.predictions.items()
    _write_list(path, ({"questionId": str(name), "prediction": answer} for name, answer in given))


def _write_list(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Each row in a line."""
    write_text(path, "[" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "]\n")


def examples(folder: Path, corpus: Corpus, answered: AnsweredQuestion, scores: VqaResult) -> list[dict[str, Any]]:
    """Some of the first answers with their images, each of another image, at most half of them wrong."""
    wrong: list[Any] = []
    right: list[Any] = []
    first = list(scores.accuracies)[:_CANDIDATES]
    for name in _of_different_images(first, answered):
        chosen = right if scores.accuracies[name] >= 0.5 else wrong
        if chosen is right or len(wrong) < EXAMPLES // 2:
            chosen.append(name)
    return [_example(folder, corpus, answered, scores, name) for name in (wrong + right)[:EXAMPLES]]


def failures(folder: Path, corpus: Corpus, answered: AnsweredQuestion, scores: VqaResult) -> list[dict[str, Any]]:
    """The wrong answers with the highest confidence, each of another image."""
    wrong = [name for name, accuracy in scores.accuracies.items() if accuracy == 0]
    surest = sorted(wrong, key=lambda name: -answered.confidence[name])
    shown = list(_of_different_images(surest, answered))[:EXAMPLES]
    return [
        {**_example(folder, corpus, answered, scores, name), "confidence": answered.confidence[name]} for name in shown
    ]


def _of_different_images(names: Iterable[Any], answered: AnsweredQuestion) -> Iterator[Any]:
    seen: set[int] = set()
    for name in names:
        if answered.records[name] not in seen:
            seen.add(answered.records[name])
            yield name


def _example(folder: Path, corpus: Corpus, answered: AnsweredQuestion, scores: VqaResult, name: Any) -> dict[str, Any]:
    return {
        "image": keep_image(folder, corpus[answered.records[name]].get("image", b"")),
        "question": answered.asked[name]["question"],
        "prediction": answered.predictions[name],
        "answers": list(answered.asked[name]["answers"]),
        "accuracy": scores.accuracies[name],
    }
