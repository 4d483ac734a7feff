"""Extractive question answering (SQuAD 1.1 and 2.0): exact match and F1 over words.

The answers are spans of the text, as in SQuAD, Natural Questions and CMRC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.finetuning.inheritance import text_sequence
from workbench.evaluation.scoring.asked import questioned
from workbench.evaluation.scoring.downstream_task import Setup
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.objective_task import GatheredTensors, ObjectiveTask
from workbench.evaluation.task_options import ExtractPredicting, ExtractScoring, ExtractTuning
from workbench.metrics.answers import answer_tallies
from workbench.objectives.span_extraction import SpanExtraction, answer_target
from workbench.pretraining.objective import Objective
from workbench.recipe.spec import Recipe
from workbench.sequences.sequence import Sample

LENGTH = 384


class SpanExtractionTask(ObjectiveTask[ExtractTuning, ExtractScoring]):
    """The stretch of a text that answers, next to no answer at all where that may be right."""

    tuning = ExtractTuning
    scoring = ExtractScoring
    predicting = ExtractPredicting
    objective: type[Objective] = SpanExtraction
    panels = ("workbench.evaluation.task_panels:answered",)

    def setup(self, tuning: ExtractTuning, base: Recipe) -> Setup:
        silent = has_questions_without_answer(Corpus.open(tuning.corpus))
        objective = {"objective": "span_extraction", "no_answer": silent, "longest": tuning.longest}
        return Setup(text_sequence(base, "passage", tuning.max_length, LENGTH, stride=tuning.stride), objective)

    def needs(self, objective: SpanExtraction) -> str:
        return "questions (`second`) with `answers` and `answer_spans`"

    def counts(self, objective: SpanExtraction, made: GatheredTensors, samples: Iterable[Sample]) -> dict[str, int]:
        silent = int((made["answer_count"] == 0).sum())
        return {"questions": len(made["answer_count"])} | ({"without an answer": silent} if silent else {})

    def variant(self, objective: SpanExtraction, scoring: ExtractScoring) -> str:
        return f"answers of at most {objective.longest} tokens{', or none' if objective.no_answer else ''}"

    def counted(self, objective: SpanExtraction, targets: Mapping[str, Any]) -> int:
        return len(targets["answer_count"]) if "answer_count" in targets else 0

    def predictions(self, objective: SpanExtraction, made: GatheredTensors, keys: list[str]) -> EvaluationItems:
        """A question an item, with the text that answers it ("" for none), its place in characters and how probable it
        is."""
        texts, answers = answer_target(made)
        places, sure = made["place"].tolist(), made["confidence"].tolist()
        each = zip(keys, answers, texts, places, sure, strict=True)
        lines: list[dict[str, Any]] = [
            {"key": key, "gold": right, "prediction": ours, "place": place, "score": score}
            for key, right, ours, place, score in each
        ]
        return EvaluationItems(lines, answer_tallies(texts, answers))

    def asked(self, run: EvaluatedRun, sample: Sample, predicting: Any) -> Sample:
        return {**questioned(sample, predicting, needed=True), "answers": [], "answer_spans": []}

    def answered(self, objective: SpanExtraction, line: dict[str, Any], sample: Sample) -> dict[str, Any]:
        """With the place of the answer, 0 and 0 for none, and its probability."""
        start, end = line["place"]
        return {"key": line["key"], "prediction": line["prediction"], "start": start, "end": end} | {
            "probability": line["score"]
        }

    def baselines(
        self, run: EvaluatedRun, objective: SpanExtraction, made: GatheredTensors, samples: Iterable[Sample]
    ) -> dict[str, GatheredTensors]:
        """The baseline without any answer, if that may be right."""
        lengths = torch.zeros_like(made["predicted_length"])
        never = {**made, "predicted": made["predicted"][:0], "predicted_length": lengths}
        return {"never an answer": never} if objective.no_answer else {}

    def example(self, objective: SpanExtraction, sample: Sample, made: GatheredTensors) -> dict[str, Any]:
        (predicted,), (answers,) = answer_target(made)
        return {"text": sample["text"], "question": sample["second"], "prediction": predicted, "answers": answers}


def has_questions_without_answer(corpus: Corpus) -> bool:
    """Whether some question of the corpus has no answer.

    Raises:
        WorkbenchError: no record is a question with an answer whose place is known.
    """
    asked = [sample for sample in corpus if "second" in sample and "answers" in sample]
    if any(sample["answers"] and sample.get("answer_spans") for sample in asked):
        return any(not sample["answers"] for sample in asked)
    fields = corpus.manifest.fields
    if {"second", "answers", "answer_spans"} <= set(fields):
        raise WorkbenchError(
            f"no record of corpus {corpus.name!r} has a question (`second`) together with an answer (`answers`) and "
            "its place (`answer_spans`); nothing can be learned"
        )
    raise WorkbenchError(
        f"corpus {corpus.name!r} has no questions with an answer in the text (it has {', '.join(fields)}); prepare "
        'texts with `second`, `answers` and `answer_spans`: {"text": "Ann sang.", "second": "Who sang?", "answers": '
        '["Ann"], "answer_spans": [[0, 3]]}'
    )
