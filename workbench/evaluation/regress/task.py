"""Regression on texts and pairs of texts: semantic similarity, ratings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

import numpy as np
import torch

from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError
from workbench.evaluation.inherited import text_sequence
from workbench.evaluation.items import Items
from workbench.evaluation.labels import check_varied, chosen_label
from workbench.evaluation.measured import Made, MeasuredTask
from workbench.evaluation.opening import Evaluated
from workbench.evaluation.passes import all_records
from workbench.evaluation.regress.options import RegressScoring, RegressTuning
from workbench.evaluation.task import Setup
from workbench.metrics.correlations import number_tallies
from workbench.objectives.regress import Regress
from workbench.recipe.spec import Recipe
from workbench.sequences.sequence import Sample
from workbench.tasks.objective import Objective


class Regression(MeasuredTask[RegressTuning, RegressScoring]):
    """One number for a text or for a pair."""

    tuning = RegressTuning
    scoring = RegressScoring
    objective: type[Objective] = Regress
    panels = ("workbench.evaluation.regress.panel:estimated",)

    def setup(self, tuning: RegressTuning, base: Recipe) -> Setup:
        corpus = Corpus.open(tuning.corpus)
        label, counts = chosen_label(corpus, tuning.label, example="3.5")
        for each in (corpus, *([Corpus.open(tuning.held_out)] if tuning.held_out else [])):
            _check_numbers(each, label)
        check_varied(corpus, label, counts)
        sequence = text_sequence(base, "sentence_pair", tuning.max_length, split=False)
        return Setup(sequence, {"objective": "regress", "label": label}, poolers=("text",))

    def needs(self, objective: Regress) -> str:
        return f"texts with the label {objective.label!r}"

    def counts(self, objective: Regress, made: Made, samples: Iterable[Sample]) -> dict[str, int]:
        return {"texts": len(made["gold"])}

    def variant(self, objective: Regress, scoring: RegressScoring) -> str:
        return f"label {objective.label}"

    def counted(self, objective: Regress, targets: Mapping[str, Any]) -> int:
        return int(np.isfinite(targets["numbers"]).sum()) if "numbers" in targets else 0

    def predictions(self, objective: Regress, made: Made, keys: list[str]) -> Items:
        predicted, gold = (made[name].double().numpy() for name in ("predicted", "gold"))
        told = zip(keys, gold.tolist(), predicted.tolist(), strict=True)
        lines = [{"key": key, "gold": right, "prediction": ours} for key, right, ours in told]
        return Items(lines, number_tallies(predicted, gold))

    def baselines(self, run: Evaluated, objective: Regress, made: Made, samples: Iterable[Sample]) -> dict[str, Made]:
        """Always the mean of the training set."""
        trained = run.trained_on()
        if trained is None:
            return {}
        found = [sample["labels"][objective.label] for sample in trained if objective.label in sample.get("labels", {})]
        mean = torch.full_like(made["gold"], sum(found) / len(found))
        return {"always the mean": {**made, "predicted": mean}}

    def example(self, objective: Regress, sample: Sample, made: Made) -> dict[str, Any]:
        told = {"prediction": round(float(made["predicted"]), 4), "number": float(made["gold"])}
        return {"text": sample["text"], "second": sample.get("second", ""), **told}


def _check_numbers(corpus: Corpus, label: str) -> None:
    """Raises WorkbenchError where a text's label is no finite number: with the first of them and their number."""
    found = ((sample, sample["labels"][label]) for sample in all_records(corpus) if label in sample.get("labels", {}))
    odd = [(sample, value) for sample, value in found if not (isinstance(value, Real) and math.isfinite(value))]
    if odd:
        sample, value = odd[0]
        meta = sample.get("meta", {})
        place = f"{meta['source']}:{meta['line']}" if {"source", "line"} <= meta.keys() else f"key {sample['key']!r}"
        raise WorkbenchError(
            f"corpus {corpus.name!r}: in {len(odd)} texts {label} is no finite number, first in {place}: {value!r}; "
            "regress predicts finite numbers (for names of classes: finetune classify)"
        )
