"""What a run answers to the questions of a corpus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from vision.answers.metric import VqaResult
from vision.answers.vocabulary import AnswerVocabulary
from vision.evaluation.examples import keep_image
from vision.objectives.answers import Answers, AnswersHead
from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError
from workbench.evaluation.opening import Evaluated
from workbench.evaluation.passes import forward_pass, sample_pass
from workbench.sequences.sequence import Sample, Sequence

EXAMPLES = 12
_CANDIDATES = 96  # questions that examples are chosen from; their images are kept in memory


@dataclass
class Answered:
    """Predicted answers by question id, the questions in their order, and the images of the first of them."""

    predictions: dict[Any, str] = field(default_factory=dict)
    questions: list[dict[str, Any]] = field(default_factory=list)
    images: int = 0
    shown: dict[Any, bytes] = field(default_factory=dict)

    def add(self, sequence: Sequence, answer: str, sample: Sample) -> None:
        """
        Raises:
            WorkbenchError: a question of this id is there already.
        """
        name = sequence.meta["question_id"]
        if name in self.predictions:
            raise WorkbenchError(f"the question id {name!r} occurs twice (again in record {sequence.key!r})")
        self.predictions[name] = answer
        self.questions.append(sequence.meta)
        if len(self.shown) < _CANDIDATES:
            self.shown[name] = sample.get("image", b"")


def predict(run: Evaluated, corpus: Corpus, *, batch_size: int = 32, limit: int | None = None) -> Answered:
    """The most probable answer to every question."""
    head = run.head
    assert isinstance(head, AnswersHead)
    answers, answered = vocabulary_of(run).answers, Answered()
    samples = sample_pass([corpus], size=batch_size, unit=None, limit=limit)
    with torch.inference_mode():
        for forward in forward_pass(run.network, run.task.sequences, samples):
            best = head.logits(run.network, forward.states, forward.batch).argmax(1).tolist()
            by_key = {str(sample["key"]): sample for sample in forward.samples}
            answered.images += len(forward.samples)
            for sequence, answer in zip(forward.sequences, best, strict=True):
                answered.add(sequence, answers[answer], by_key[sequence.key])
    return answered


def vocabulary_of(run: Evaluated) -> AnswerVocabulary:
    """The answers that the run can give."""
    objective = run.objective.objective
    assert isinstance(objective, Answers)
    return objective.vocabulary


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


def examples(folder: Path, answered: Answered, scores: VqaResult) -> list[dict[str, Any]]:
    """Some answers with their images, each of another image, at most half of them wrong."""
    asked = {question["question_id"]: question for question in answered.questions}
    wrong: list[Any] = []
    right: list[Any] = []
    seen: set[bytes] = set()
    for name, image in answered.shown.items():
        chosen = right if scores.accuracies[name] >= 0.5 else wrong
        if image in seen or (chosen is wrong and len(wrong) >= EXAMPLES // 2):
            continue
        seen.add(image)
        chosen.append(name)
    return [
        {
            "image": keep_image(folder, answered.shown[name]),
            "question": asked[name]["question"],
            "prediction": answered.predictions[name],
            "answers": list(asked[name]["answers"]),
            "accuracy": scores.accuracies[name],
        }
        for name in (wrong + right)[:EXAMPLES]
    ]
