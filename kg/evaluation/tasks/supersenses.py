"""Supersense prediction for masked words, compared with the most frequent supersense.

Words are masked and predicted as in pretraining (SenseBERT, arXiv:1908.05646).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from kg.evaluation.task_options import SupersenseScoring
from kg.objectives.supersense import Supersense
from workbench.evaluation.options import Tuning
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun, texts_alone
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.objective_task import GatheredTensors, ObjectiveTask
from workbench.metrics.tallies import Tally
from workbench.sequences.sequence import Sample


class Supersenses(ObjectiveTask[Tuning, SupersenseScoring]):
    """Supersenses at the words that masked language modelling hides."""

    scoring = SupersenseScoring
    objective = Supersense
    recipe = "sensebert"
    panels = ("kg.evaluation.task_panels:meant",)

    def open(self, scoring: SupersenseScoring) -> EvaluatedRun:
        """As usual, with texts read to their end."""
        return texts_alone(super().open(scoring))

    def needs(self, objective: Supersense) -> str:
        return "texts with words that have a supersense"

    def counts(self, objective: Supersense, made: GatheredTensors, samples: Iterable[Sample]) -> dict[str, int]:
        single = int((made["allowed"].sum(1) == 1).sum())
        return {"words": len(made["predicted"]), "of a single supersense": single}

    def counted(self, objective: Supersense, targets: Mapping[str, Any]) -> int:
        return len(targets["labels"]) if "labels" in targets else 0

    def predictions(self, objective: Supersense, made: GatheredTensors, keys: list[str]) -> EvaluationItems:
        """A word an item, with the supersenses that it may have."""
        names, predicted, allowed = objective.senses.classes, made["predicted"], made["allowed"].bool()
        lines = [
            {"key": key, "gold": [names[i] for i in row.nonzero().flatten().tolist()], "prediction": names[best]}
            for key, row, best in zip(keys, allowed, predicted.tolist(), strict=True)
        ]
        right = allowed.gather(1, predicted[:, None]).squeeze(1).numpy()
        single = (allowed.sum(1) == 1).numpy()
        tallies = {"allowed_accuracy": Tally.share(right)}
        return EvaluationItems(
            lines, tallies | ({"single_accuracy": Tally.share(right, single)} if single.any() else {})
        )

    def baselines(
        self, run: EvaluatedRun, objective: Supersense, made: GatheredTensors, samples: Iterable[Sample]
    ) -> dict[str, GatheredTensors]:
        """The baseline: always the supersense that most of these words may have."""
        most = int(made["allowed"].sum(0).argmax())
        always = torch.full_like(made["predicted"], most)
        return {f"always {objective.senses.classes[most]}": {**made, "predicted": always}}

    def example(self, objective: Supersense, sample: Sample, made: GatheredTensors) -> dict[str, Any]:
        names = objective.senses.classes
        allowed = [[names[i] for i in row.nonzero().flatten().tolist()] for row in made["allowed"]]
        predicted = [names[i] for i in made["predicted"].tolist()]
        return {"text": sample["text"], "predicted": predicted, "allowed": allowed}
