"""What the steps since the last line of metrics measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from workbench.processes.distributed import World
from workbench.runs.metrics import Record
from workbench.training.step import StepResult
from workbench.training.sums import Sums, add_sums


@dataclass
class Window:
    """Sums over the steps since the last line of metrics. Part of a checkpoint, so that lines survive a restart.

    Losses, rows and samples are over all ranks already; metrics and drops are this rank's until `merge`.
    """

    losses: Sums = field(default_factory=dict)
    metrics: Sums = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    samples: int = 0
    steps: int = 0
    grad_norm: float = 0.0
    skipped: int = 0

    def add(self, result: StepResult) -> None:
        add_sums(self.losses, result.losses)
        add_sums(self.metrics, result.metrics)
        for reason, count in result.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count
        self.rows += result.rows
        self.samples += result.samples
        self.steps += 1
        self.skipped += result.skipped
        if not result.skipped:
            self.grad_norm = result.grad_norm

    def merge(self, world: World) -> None:
        """Bring the ranks' own sums to the main rank; the others start again from nothing."""
        everyone = world.gather((self.metrics, self.dropped))
        self.metrics, self.dropped = {}, {}
        if world.is_main:
            for metrics, dropped in everyone:
                add_sums(self.metrics, metrics)
                for reason, count in dropped.items():
                    self.dropped[reason] = self.dropped.get(reason, 0) + count

    def means(self) -> Record:
        """`<objective>/loss` per label and every `<objective>/<metric>`; what had no label is left out."""
        losses = {f"{name}/loss": total / count for name, (total, count) in self.losses.items() if count}
        return losses | {name: total / count for name, (total, count) in self.metrics.items() if count}

    def state(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Window:
        sums = {key: {name: tuple(pair) for name, pair in state[key].items()} for key in ("losses", "metrics")}
        return cls(**{**state, **sums})
