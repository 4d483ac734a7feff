"""The tasks of each step: a pure function of the step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import generator
from workbench.recipe.spec import TaskSpec

BLOCK_LIMIT = 1000
Kind = Literal["together", "sampled", "staged"]


@dataclass(frozen=True)
class Turn:
    """A turn of a task in a step: `number` counts the task's own steps from 0 and selects its micro-batches."""

    task: str
    number: int


class TaskSchedule:
    """The schedule of tasks: which ones share step `s` (from 0). Stateless, so that a run resumes at any step.

    - together: every task, every step; `weight` multiplies the task's losses.
    - sampled: one task a step (UNITER), in proportion to `weight`, exact over blocks of steps whose order is shuffled.
    - staged: every task from its `start_step` up to its `end_step`; without the latter tasks accumulate (ERNIE 2.0's
      continual multi-task learning), with it they follow each other (ERNIE 1.0's stages of masking). `weight`
      multiplies the task's losses.

    Raises:
        WorkbenchError: a weight that is not positive, a `start_step` or `end_step` that the schedule would ignore, or
            steps that no task has.
    """

    def __init__(
        self, kind: Literal["together", "sampled", "staged"], tasks: Mapping[str, TaskSpec], seed: int
    ) -> None:
        self.kind = kind
        self.seed = seed
        self.starts = {name: spec.start_step for name, spec in tasks.items()}
        self.weights = {name: spec.weight for name, spec in tasks.items()}
        for name, weight in self.weights.items():
            if not (weight > 0 and math.isfinite(weight)):
                raise WorkbenchError(
                    f"tasks.{name}.weight = {weight}; allowed: a positive number (to leave a task out, remove it)"
                )
        self.ends = {name: spec.end_step for name, spec in tasks.items()}
        self._check_stages()
        self.block = _block(self.weights) if kind == "sampled" else ()

    def at(self, step: int) -> list[Turn]:
        """The tasks of this step, in recipe order."""
        if self.kind == "sampled":
            number, place = divmod(step, len(self.block))
            order = self._order(number)
            task = order[place]
            return [Turn(task, number * self.block.count(task) + order[:place].count(task))]
        return [Turn(name, step - self.starts[name]) for name in self.starts if self._has(name, step)]

    def turns(self, task: str, steps: int) -> int:
        """The number of turns of the task in the first steps of a run."""
        if self.kind == "sampled":
            blocks, rest = divmod(steps, len(self.block))
            return blocks * self.block.count(task) + self._order(blocks)[:rest].count(task)
        end = self.ends[task]
        return max(0, min(steps, steps if end is None else end) - self.starts[task])

    def _has(self, task: str, step: int) -> bool:
        end = self.ends[task]
        return self.starts[task] <= step and (end is None or step < end)

    def _check_stages(self) -> None:
        ends = {name: end for name, end in self.ends.items() if end is not None}
        if self.kind != "staged":
            for key, found in (("start_step", self.starts), ("end_step", ends)):
                if any(found.values()):
                    raise WorkbenchError(f"{key} is for `schedule: staged`; found {found} with `schedule: {self.kind}`")
            return
        if min(self.starts.values()) != 0:
            raise WorkbenchError(f"schedule staged: no task starts at step 0 (start_step: {self.starts}); one must")
        for name, end in ends.items():
            if end <= self.starts[name]:
                raise WorkbenchError(
                    f"tasks.{name}: end_step = {end}, start_step = {self.starts[name]}; allowed: a later end"
                )
            if not any(self._has(other, end) for other in self.starts):
                raise WorkbenchError(
                    f"schedule staged: tasks.{name} ends before step {end}, and no other task has that step "
                    f"(start_step: {self.starts}, end_step: {ends}); one must, up to the end of the run"
                )

    def loss_weight(self, task: str) -> float:
        """The factor of a task's losses: its weight, except where the weight decides how often it is drawn."""
        return 1.0 if self.kind == "sampled" else self.weights[task]

    def _order(self, number: int) -> tuple[str, ...]:
        return _shuffled(self.block, self.seed, number)


@lru_cache(maxsize=4)
def _shuffled(block: tuple[str, ...], seed: int, number: int) -> tuple[str, ...]:
    order = generator(seed, "schedule", number).permutation(len(block))
    return tuple(block[i] for i in order)


def _block(weights: Mapping[str, float]) -> tuple[str, ...]:
    """The shortest list of tasks with these proportions (at most about a thousand long, each task at least once)."""
    exact = {name: Fraction(weight).limit_denominator(BLOCK_LIMIT) for name, weight in weights.items()}
    scale = math.lcm(*(fraction.denominator for fraction in exact.values()))
    counts = {name: int(fraction * scale) for name, fraction in exact.items()}
    if sum(counts.values()) > BLOCK_LIMIT or min(counts.values()) == 0:
        total = sum(weights.values())
        counts = {name: max(1, round(weight / total * BLOCK_LIMIT)) for name, weight in weights.items()}
    common = math.gcd(*counts.values())
    return tuple(name for name, count in counts.items() for _ in range(count // common))
