"""Visual question answering.

Fine-tuning is classification over the answers of the training set (LXMERT: lr 5e-5, batches of 32, 4 epochs; UNITER:
lr 8e-5, batches of about 10,000 tokens), with soft labels where questions have several annotators. The images come in
as in the run's pretraining.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from vision.answers.metric import Variant, evaluate_vqa, majority_baseline, variant_of
from vision.answers.vocabulary import AnswerVocabulary
from vision.evaluation.vqa.pictures import draw_question
from vision.evaluation.vqa.predictions import examples, predict, questions_of, vocabulary_of
from vision.objectives.answers import Answers
from workbench.corpora.corpus import Corpus
from workbench.evaluation.images import image_sequence
from workbench.evaluation.opening import Evaluated
from workbench.evaluation.options import Scoring, Tuning
from workbench.evaluation.result import Result
from workbench.evaluation.task import DownstreamTask, Setup
from workbench.options.bounds import Count
from workbench.recipe.spec import Recipe

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class VqaTuning(Tuning):
    """Fine-tune a pretrained run to answer questions about images.

    CORPUS holds images with `questions`. The control question-only trains without the images.

    Examples:

      workbench finetune vqa runs/uniter corpora/vqa-train --epochs 4 --output runs/uniter-vqa

      workbench finetune vqa runs/uniter corpora/vqa-train --control question-only -o runs/uniter-vqa-blind
    """

    answers: Annotated[
        Path | None, typer.Option(help="Vocabulary (a JSON list of answers); default: the answers of CORPUS.")
    ] = None
    min_count: Annotated[
        Count, typer.Option(help="How many questions of CORPUS an answer must be the main one of.")
    ] = 9
    max_length: Annotated[Count | None, typer.Option(help="Tokens of a question; default: the run's.")] = None


@dataclass(frozen=True, kw_only=True)
class VqaScoring(Scoring):
    """VQA accuracy by the official rules, per answer type, beside the majority answer.

    CORPUS holds images with `questions` and their answers.

    Examples:

      workbench evaluate vqa runs/uniter-vqa corpora/vqa-val

      workbench evaluate vqa runs/uniter-vqa corpora/vqa-val --control question-only
    """

    variant: Annotated[
        Variant | None,
        typer.Option(help="Default: official_2015, or single_answer where some question has one answer only."),
    ] = None
    batch_size: Annotated[Count, typer.Option(help="Images at once, with all their questions.")] = 32


class Vqa(DownstreamTask[VqaTuning, VqaScoring]):
    """Answers to questions about images, beside the majority answer and the best that the vocabulary allows."""

    tuning = VqaTuning
    scoring = VqaScoring
    objective = Answers
    panels = ("vision.evaluation.vqa.panel:answered",)

    def setup(self, tuning: VqaTuning, base: Recipe) -> Setup:
        questions = list(questions_of(Corpus.open(tuning.corpus)))
        loaded = AnswerVocabulary.load(tuning.answers) if tuning.answers else None
        vocabulary = loaded or AnswerVocabulary.build(questions, tuning.min_count)
        single = all(len(question["answers"]) == 1 for question in questions)
        objective = {
            "objective": "vision.answers",
            "answers": list(vocabulary.answers),
            "loss": "cross_entropy" if single else "bce",
            "all_right": variant_of(questions) == "single_answer",
        }
        sequence = image_sequence(base, "question_image", max_length=tuning.max_length)
        return Setup(sequence, objective, unit="questions", poolers=("text",), sees=(("text", "image"),))

    def score(self, run: Evaluated, corpus: Corpus, scoring: VqaScoring) -> Result:
        answered = predict(run, corpus, batch_size=scoring.batch_size, limit=scoring.limit)
        questions = answered.questions
        scores = evaluate_vqa(answered.predictions, questions, scoring.variant)
        if scoring.variant is None:
            logger.warning("scored with the variant %s, chosen by the numbers of answers (--variant)", scores.variant)
        return Result(
            task=self.name,
            numbers=scores.numbers(),
            counts={"questions": len(questions), "images": answered.images, "answers": len(vocabulary_of(run))},
            variant=scores.variant,
            baselines=_baselines(run, questions, scores.variant),
            examples=examples(run.folder, answered, scores),
        )

    def draw(self, run: Evaluated, corpus: Corpus, scoring: VqaScoring) -> None:
        draw_question(run, corpus)


def _baselines(run: Evaluated, questions: list[dict[str, Any]], variant: str) -> dict[str, dict[str, float]]:
    """The training set's most frequent answer, overall and per question type; the best that the vocabulary allows."""
    found = {"best of the vocabulary": {"accuracy": vocabulary_of(run).ceiling(questions, variant)}}
    trained = run.trained_on()
    if trained is None:
        return found
    training = [question for sample in trained for question in sample.get("questions", ())]
    kinds = {"majority answer": None, "majority answer per question type": "question_type"}
    for name, by in kinds.items():
        if by is None or all(by in question for question in questions):
            found[name] = evaluate_vqa(majority_baseline(training, questions, by), questions, variant).numbers()
    return found
