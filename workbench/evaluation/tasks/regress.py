"""Regression for a text or a pair of texts (similarity, ratings): Pearson and Spearman correlation.

Data sets are those of semantic similarity and ratings, for example.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.finetuning.inheritance import text_sequence
from workbench.evaluation.finetuning.labels import check_varied, chosen_label
from workbench.evaluation.scoring.asked import paired
from workbench.evaluation.scoring.downstream_task import Setup
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.objective_task import GatheredTensors, ObjectiveTask
from workbench.evaluation.task_options import RegressPredicting, RegressScoring, RegressTuning
from workbench.metrics.correlations import number_tallies
from workbench.objectives.regression import Regression, number_of
from workbench.pretraining.objective import Objective
from workbench.recipe.spec import Recipe
from workbench.sequences.sequence import Sample


class RegressionTask(ObjectiveTask[RegressTuning, RegressScoring]):
    """One number for a text or for a pair."""

    tuning = RegressTuning
    scoring = RegressScoring
    predicting = RegressPredicting
    objective: type[Objective] = Regression
    panels = ("workbench.evaluation.task_panels:estimated",)

    def setup(self, tuning: RegressTuning, base: Recipe) -> Setup:
        corpus = Corpus.open(tuning.corpus)
        label, counts = chosen_label(corpus, tuning.label, example="3.5")
        for each in (corpus, *([Corpus.open(tuning.held_out)] if tuning.held_out else [])):
            _check_numbers(each, label)
        check_varied(corpus, label, counts)
        sequence = text_sequence(base, "sentence_pair", tuning.max_length, split=False)
        return Setup(sequence, {"objective": "regression", "label": label}, poolers=("text",))

    def prepare(self, objective: Regression, corpus: Corpus, scoring: RegressScoring) -> None:
        objective.label = (
            objective.label or chosen_label(corpus, None, "3.5", "tasks.regression.objectives.0.label=NAME")[0]
        )

    def needs(self, objective: Regression) -> str:
        return f"texts with the label {objective.label!r}"

    def counts(self, objective: Regression, made: GatheredTensors, samples: Iterable[Sample]) -> dict[str, int]:
        return {"texts": len(made["gold"])}

    def variant(self, objective: Regression, scoring: RegressScoring) -> str:
        return f"label {objective.label}"

    def counted(self, objective: Regression, targets: Mapping[str, Any]) -> int:
        return int(np.isfinite(targets["numbers"]).sum()) if "numbers" in targets else 0

    def predictions(self, objective: Regression, made: GatheredTensors, keys: list[str]) -> EvaluationItems:
        predicted, gold = (made[name].double().numpy() for name in ("predicted", "gold"))
        rows = zip(keys, gold.tolist(), predicted.tolist(), strict=True)
        lines = [{"key": key, "gold": right, "prediction": ours} for key, right, ours in rows]
        return EvaluationItems(lines, number_tallies(predicted, gold))

    def asked(self, run: EvaluatedRun, sample: Sample, predicting: Any) -> Sample:
        objective = run.objective.objective
        assert isinstance(objective, Regression)
        return {**paired(sample, predicting), "labels": {objective.label: 0.0}}

    def baselines(
        self, run: EvaluatedRun, objective: Regression, made: GatheredTensors, samples: Iterable[Sample]
    ) -> dict[str, GatheredTensors]:
        """The baseline: always the mean of the training set."""
        trained = run.trained_on()
        if trained is None:
            return {}
        labels = (sample.get("labels", {}).get(objective.label) for sample in trained)
        found = [number for label in labels if label is not None and (number := number_of(label)) is not None]
        mean = torch.full_like(made["gold"], sum(found) / len(found))
        return {"always the mean": {**made, "predicted": mean}}

    def example(self, objective: Regression, sample: Sample, made: GatheredTensors) -> dict[str, Any]:
        numbers = {"prediction": round(float(made["predicted"]), 4), "number": float(made["gold"])}
        return {"text": sample["text"], "second": sample.get("second", ""), **numbers}


def _check_numbers(corpus: Corpus, label: str) -> None:
    """Raises WorkbenchError where a text's label is no finite number: with the first of them and their number."""
    found = ((sample, sample["labels"][label]) for sample in corpus if label in sample.get("labels", {}))
    odd = [(sample, value) for sample, value in found if number_of(value) is None]
    if odd:
        sample, value = odd[0]
        meta = sample.get("meta", {})
        place = f"{meta['source']}:{meta['line']}" if {"source", "line"} <= meta.keys() else f"key {sample['key']!r}"
        raise WorkbenchError(
            f"corpus {corpus.name!r}: in {len(odd)} texts {label} is no finite number, first in {place}: {value!r}; "
            "regress predicts finite numbers (for names of classes: finetune classify)"
        )
