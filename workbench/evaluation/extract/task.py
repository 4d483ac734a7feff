"""Extraction of answers: reading comprehension whose answers stand in the text (SQuAD, Natural Questions, CMRC)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import torch
import typer

from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError
from workbench.evaluation.inherited import text_sequence
from workbench.evaluation.measured import Made, MeasuredTask
from workbench.evaluation.opening import Evaluated
from workbench.evaluation.options import Epochs, Scoring, Tuning
from workbench.evaluation.passes import all_records
from workbench.evaluation.task import Setup
from workbench.objectives.extract import Extract, told
from workbench.options.bounds import Count
from workbench.recipe.spec import Recipe
from workbench.sequences.sequence import Sample
from workbench.tasks.objective import Objective

LENGTH = 384


@dataclass(frozen=True, kw_only=True)
class ExtractTuning(Tuning):
    """Fine-tune a pretrained run to find the answer to a question in a text. The defaults are BERT's for SQuAD.

    CORPUS holds texts with a question in `second`, the right `answers`, and where each stands: `answer_spans`. The
    first is trained. Where some question has no answer, the run learns to give none (SQuAD 2.0).

    Example:

      workbench finetune extract runs/bert corpora/squad-train --held-out corpora/squad-dev
    """

    epochs: Epochs = 3.0
    max_length: Annotated[
        Count | None, typer.Option(help="Tokens of question and text; default: 384, or the model's positions if fewer.")
    ] = None
    stride: Annotated[
        Count | None, typer.Option(help="Tokens between the beginnings of the parts of a long text; default: half.")
    ] = None
    longest: Annotated[Count, typer.Option(help="Tokens that an answer may have.")] = 30


@dataclass(frozen=True, kw_only=True)
class ExtractScoring(Scoring):
    """Exact match and F1 over words (SQuAD's, 0 to 1), the best of a question's right answers.

    CORPUS holds texts with a question in `second`, `answers` and `answer_spans`.

    Example:

      workbench evaluate extract runs/bert-extract corpora/squad-dev
    """


class Extraction(MeasuredTask[ExtractTuning, ExtractScoring]):
    """The stretch of a text that answers, beside no answer at all where that may be right."""

    tuning = ExtractTuning
    scoring = ExtractScoring
    objective: type[Objective] = Extract
    panels = ("workbench.evaluation.extract.panel:answered",)

    def setup(self, tuning: ExtractTuning, base: Recipe) -> Setup:
        silent = has_questions_without_answer(Corpus.open(tuning.corpus))
        objective = {"objective": "extract", "no_answer": silent, "longest": tuning.longest}
        return Setup(text_sequence(base, "passage", tuning.max_length, LENGTH, stride=tuning.stride), objective)

    def needs(self, objective: Extract) -> str:
        return "questions (`second`) with `answers` and `answer_spans`"

    def counts(self, objective: Extract, made: Made, samples: Iterable[Sample]) -> dict[str, int]:
        silent = int((made["answer_count"] == 0).sum())
        return {"questions": len(made["answer_count"])} | ({"without an answer": silent} if silent else {})

    def variant(self, objective: Extract, scoring: ExtractScoring) -> str:
        return f"answers of at most {objective.longest} tokens{', or none' if objective.no_answer else ''}"

    def baselines(self, run: Evaluated, objective: Extract, made: Made, samples: Iterable[Sample]) -> dict[str, Made]:
        """Never an answer, where that may be right."""
        lengths = torch.zeros_like(made["predicted_length"])
        never = {**made, "predicted": made["predicted"][:0], "predicted_length": lengths}
        return {"never an answer": never} if objective.no_answer else {}

    def example(self, objective: Extract, sample: Sample, made: Made) -> dict[str, Any]:
        (predicted,), (answers,) = told(made)
        return {"text": sample["text"], "question": sample["second"], "prediction": predicted, "answers": answers}


def has_questions_without_answer(corpus: Corpus) -> bool:
    """Whether some question of the corpus has no answer.

    Raises:
        WorkbenchError: no record is a question with an answer whose place is known.
    """
    asked = [sample for sample in all_records(corpus) if "second" in sample and "answers" in sample]
    if any(sample["answers"] and sample.get("answer_spans") for sample in asked):
        return any(not sample["answers"] for sample in asked)
    fields = corpus.manifest.fields
    if {"second", "answers", "answer_spans"} <= set(fields):
        raise WorkbenchError(
            f"no record of corpus {corpus.name!r} has a question (`second`) together with an answer (`answers`) and "
            "its place (`answer_spans`); nothing can be learnt"
        )
    raise WorkbenchError(
        f"corpus {corpus.name!r} has no questions with an answer in the text (it has {', '.join(fields)}); prepare "
        'texts with `second`, `answers` and `answer_spans`: {"text": "Ann sang.", "second": "Who sang?", "answers": '
        '["Ann"], "answer_spans": [[0, 3]]}'
    )
