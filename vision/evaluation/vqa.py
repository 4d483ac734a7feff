"""`workbench finetune vqa` and `workbench evaluate vqa`.

Fine-tuning is classification over the answers of the training set (LXMERT: lr 5e-5, batches of 32, 4 epochs; UNITER:
lr 8e-5, batches of about 10,000 tokens), with soft labels where questions have several annotators. The images come in
as in the run's pretraining.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from vision.answers.metric import Variant, VqaResult, evaluate_vqa, majority_baseline, variant_of
from vision.answers.vocabulary import AnswerVocabulary
from vision.evaluation.examples import keep_image
from vision.evaluation.pictures import draw_question
from vision.evaluation.sequence import image_sequence
from vision.objectives.answers import Answers, AnswersHead
from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError
from workbench.evaluation.finetuning import Tuning
from workbench.evaluation.opening import Evaluated, open_run, result_path
from workbench.evaluation.passes import forward_pass, sample_pass
from workbench.evaluation.result import Result, corpus_input
from workbench.options.bounds import Count, Location
from workbench.options.command import Trust, command
from workbench.recipe.spec import Control
from workbench.runs.folder import read_recipe
from workbench.sequences.builders.question_image import QuestionImage
from workbench.sequences.sequence import Sample, Sequence

logger = logging.getLogger(__name__)

TASK = "vqa"
EXAMPLES = 12
_CANDIDATES = 96  # questions that examples are chosen from; their images are kept in memory


@command
def finetune(
    tuning: Tuning,
    answers: Annotated[
        Path | None, typer.Option(help="Vocabulary (a JSON list of answers); default: the answers of CORPUS.")
    ] = None,
    min_count: Annotated[
        Count, typer.Option(help="How many questions of CORPUS an answer must be the main one of.")
    ] = 9,
    max_length: Annotated[Count | None, typer.Option(help="Tokens of a question; default: the run's.")] = None,
) -> None:
    """Fine-tune a pretrained run to answer questions about images.

    CORPUS holds images with `questions`. The control question-only trains without the images.

    Examples:

      workbench finetune vqa runs/uniter corpora/vqa-train --epochs 4 --output runs/uniter-vqa

      workbench finetune vqa runs/uniter corpora/vqa-train --control question-only -o runs/uniter-vqa-blind
    """
    questions = list(_questions(Corpus.open(tuning.corpus)))
    vocabulary = AnswerVocabulary.load(answers) if answers else AnswerVocabulary.build(questions, min_count)
    single = all(len(question["answers"]) == 1 for question in questions)
    objective = {
        "objective": "vision.answers",
        "answers": list(vocabulary.answers),
        "loss": "cross_entropy" if single else "bce",
        "all_right": variant_of(questions) == "single_answer",
    }
    sequence = image_sequence(read_recipe(tuning.run), "question_image", max_length=max_length)
    tuning.train(tuning.recipe(TASK, sequence, objective, unit="questions", poolers=("text",)))


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run that `finetune vqa` made.")],
    corpus: Annotated[Location, typer.Argument(help="Test set: images with `questions` and their answers.")],
    variant: Annotated[
        Variant | None,
        typer.Option(help="Default: official_2015, or single_answer where some question has one answer only."),
    ] = None,
    control: Annotated[Control | None, typer.Option(help="question-only: without the image, at test time.")] = None,
    batch_size: Annotated[Count, typer.Option(help="Images at once, with all their questions.")] = 32,
    limit: Annotated[Count | None, typer.Option(help="Only the first images.")] = None,
    trust: Trust = False,
) -> None:
    """VQA accuracy by the official rules, per answer type, beside the majority answer.

    Examples:

      workbench evaluate vqa runs/uniter-vqa corpora/vqa-val

      workbench evaluate vqa runs/uniter-vqa corpora/vqa-val --control question-only
    """
    opened = Corpus.open(corpus)
    wanted = f"fine-tune it first: workbench finetune {TASK} {run} TRAINING-SET"
    evaluated = open_run(run, Answers, wanted, control=control, trust=trust)
    result = evaluate_answers(evaluated, opened, variant, batch_size=batch_size, limit=limit)
    result.control = control
    result.write(result_path(run, TASK, opened.name, control))
    draw_question(evaluated, opened)
    result.show()


def evaluate_answers(
    run: Evaluated, corpus: Corpus, variant: str | None = None, *, batch_size: int = 32, limit: int | None = None
) -> Result:
    """The accuracies (per cent) of a run's answers to all questions of a corpus, and those of the baselines.

    Args:
        variant: as for `evaluate_vqa`.
        limit: only the first images.

    Raises:
        WorkbenchError: no questions, two of one id, or a variant that does not fit them.
    """
    answered = predict(run, corpus, batch_size=batch_size, limit=limit)
    questions = answered.questions
    scores = evaluate_vqa(answered.predictions, questions, variant)
    if variant is None:
        logger.warning("scored with the variant %s, chosen by the numbers of answers (--variant)", scores.variant)
    vocabulary = _vocabulary(run)
    return Result(
        task=TASK,
        numbers=scores.numbers(),
        counts={"questions": len(questions), "images": answered.images, "answers": len(vocabulary)},
        inputs={"checkpoint": run.checkpoint, "corpus": corpus_input(corpus)},
        variant=scores.variant,
        baselines=_baselines(run, questions, scores.variant),
        examples=_examples(run.folder, answered, scores),
    )


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
    """The most probable answer to every question, without augmentation."""
    builder, head = run.task.builder, run.head
    assert isinstance(builder, QuestionImage)
    assert isinstance(head, AnswersHead)
    builder.image.augment = False
    answers, answered = _vocabulary(run).answers, Answered()
    samples = sample_pass([corpus], size=batch_size, unit=None, limit=limit)
    with torch.inference_mode():
        for forward in forward_pass(run.network, run.task.sequences, samples):
            best = head.logits(run.network, forward.states, forward.batch).argmax(1).tolist()
            by_key = {str(sample["key"]): sample for sample in forward.samples}
            answered.images += len(forward.samples)
            for sequence, answer in zip(forward.sequences, best, strict=True):
                answered.add(sequence, answers[answer], by_key[sequence.key])
    return answered


def _vocabulary(run: Evaluated) -> AnswerVocabulary:
    objective = run.objective.objective
    assert isinstance(objective, Answers)
    return objective.vocabulary


def _questions(corpus: Corpus) -> Iterator[dict[str, Any]]:
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


def _baselines(run: Evaluated, questions: list[dict[str, Any]], variant: str) -> dict[str, dict[str, float]]:
    """The training set's most frequent answer, overall and per question type; the best that the vocabulary allows."""
    found = {"best of the vocabulary": {"accuracy": _vocabulary(run).ceiling(questions)}}
    try:
        corpora = [Corpus.open(place) for place in run.task.spec.corpora]
    except WorkbenchError as error:
        logger.warning("no majority baseline, since the training set is not at hand: %s", error)
        return found
    training = [question for corpus in corpora for question in _questions(corpus)]
    kinds = {"majority answer": None, "majority answer per question type": "question_type"}
    for name, by in kinds.items():
        if by is None or all(by in question for question in questions):
            found[name] = evaluate_vqa(majority_baseline(training, questions, by), questions, variant).numbers()
    return found


def _examples(folder: Path, answered: Answered, scores: VqaResult) -> list[dict[str, Any]]:
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
