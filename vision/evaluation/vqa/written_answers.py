"""Answers that a run writes: a decoder that reads the image and the question as a conversation (LLaVA,
arXiv:2304.08485)."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from vision.evaluation.vqa.answer_predictions import PredictedAnswer
from workbench.components.controls import check_control
from workbench.evaluation.analysis.generation import Generator
from workbench.evaluation.options import HeadReading, TextDecoding
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun, of_task
from workbench.runs.loaded_run import LoadedRun
from workbench.sequences.builders.conversation import ConversationBuilder
from workbench.sequences.missing_fields import missing
from workbench.sequences.sequence import Sample

LONGEST = 16
"""Tokens of an answer by default: answers of the sets are a few words."""


def writing_run(loaded: LoadedRun, folder: Path, options: HeadReading) -> EvaluatedRun | None:
    """A run in the first of its tasks that is a conversation about an image; None where it has none.

    Raises:
        WorkbenchError: the task is unknown, none of its objectives predicts the next token, or the control would change
            nothing.
    """
    tasks = {name: task for name, task in of_task(loaded, folder, options.task).tasks.items() if _about_images(task)}
    if not tasks:
        return None
    generator = Generator(replace(loaded, tasks=tasks), network_name=options.network, objective=options.objective)
    opened = EvaluatedRun(generator.loaded, generator.task, generator.placed, folder)
    check_control(options.control, opened.parts, str(folder))
    return opened


def generator_of(run: EvaluatedRun, options: TextDecoding) -> Generator:
    """What writes the answers of a run that `writing_run` has opened."""
    placed = run.objective
    return Generator(run.loaded, options.decoding(LONGEST), placed.network, objective=placed.name)


def write_answers(generator: Generator, samples: list[Sample]) -> list[PredictedAnswer]:
    """The written answer to each question of the samples, each asked without the others.

    Its confidence is the probability of its tokens. With several beams that holds only without a length penalty (0);
    otherwise it is exp of the beam's score, log p / (number of tokens) ** length_penalty.

    Raises:
        WorkbenchError: a sample has no questions.
    """
    for sample in samples:
        if not sample.get("questions"):
            raise missing(sample, "questions")
    asked = [(place, sample, question) for place, sample in enumerate(samples) for question in sample["questions"]]
    made = generator([{**sample, "questions": [question]} for _, sample, question in asked])
    return [
        PredictedAnswer(
            str(sample["key"]), question, generator.spelling.text(text.tokens).strip(), math.exp(text.score), place
        )
        for (place, sample, question), text in zip(asked, made, strict=True)
    ]


def _about_images(task: object) -> bool:
    builder = getattr(task, "builder", None)
    return isinstance(builder, ConversationBuilder) and "image" in builder.reads
