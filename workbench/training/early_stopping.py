"""Early stopping: the end of a run whose held-out metric no longer improves (`train.stop`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from workbench.core.errors import unknown
from workbench.recipe.train_spec import StopSpec
from workbench.runs.metric_tables import HELD_OUT
from workbench.training.held_out import improves


class EarlyStopping:
    """Counts the held-out passes in which the metric of `train.stop` did not improve.

    All ranks have the same values of a pass, so that they stop together. The count is part of a checkpoint, so that a
    run that was killed stops at the same step.

    Args:
        spec: None for a run that never stops early.
    """

    def __init__(self, spec: StopSpec | None) -> None:
        self.spec = spec
        self.best: float | None = None
        self.passes = 0

    def add(self, values: Mapping[str, float]) -> None:
        """Count a held-out pass.

        Raises:
            WorkbenchError: the metric is not among its values.
        """
        if self.spec is None:
            return
        name, value = held_out_value(values, self.spec.metric, "train.stop.metric")
        if math.isfinite(value) and improves(name, value, self.best, self.spec.min_delta):
            self.best, self.passes = value, 0
        else:
            self.passes += 1

    @property
    def reason(self) -> str:
        """Why the run stops; empty if it does not."""
        if self.spec is None or self.passes < self.spec.patience:
            return ""
        best = "was never a finite number" if self.best is None else f"was best at {self.best:.6g}"
        return f"train.stop: {self.spec.metric} {best} and did not improve in {self.passes} held-out passes"

    def state(self) -> dict[str, Any] | None:
        """The entry in a checkpoint."""
        return None if self.spec is None else {"metric": self.spec.metric, "best": self.best, "passes": self.passes}

    def load(self, state: Mapping[str, Any] | None) -> None:
        """Continue the count of a checkpoint; of another metric it starts anew."""
        if self.spec is not None and state is not None and state["metric"] == self.spec.metric:
            self.best, self.passes = state["best"], state["passes"]


def held_out_value(values: Mapping[str, float], metric: str, key: str) -> tuple[str, float]:
    """The full name and the value of a metric that a key of the recipe names, with or without `held_out/`.

    Raises:
        WorkbenchError: there is no such metric.
    """
    name = metric if metric.startswith(HELD_OUT) else f"{HELD_OUT}{metric}"
    if name not in values:
        raise unknown("metric", name, values, key)
    return name, values[name]
