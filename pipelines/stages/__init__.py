"""Stages: plain callables `stage(sample) -> sample | None | Drop(reason)` that run in the worker processes.

A stage is a frozen dataclass, or a function of a module, so that it can be sent to another process and its options
are part of the run's fingerprint (fields with `compare=False` are not). It may change the sample that it is given.
A stage that is faster on several samples has a method `batch(samples) -> list of the same` besides, and may say with an
attribute `batch_size` how many it wants at least where there are so many.
"""

from __future__ import annotations

from collections.abc import Callable

from pipelines.readers.reader import Drop
from workbench.sequences.sequence import Sample

Stage = Callable[[Sample], Sample | Drop | None]


def stage_name(stage: Stage) -> str:
    """The name that a stage's drops are counted under: its class or function."""
    return getattr(stage, "__name__", type(stage).__name__)


def apply(stage: Stage, samples: list[Sample | Drop]) -> list[Sample | Drop]:
    """The samples after a stage, at their places; what was dropped before stays dropped."""
    alive = [sample for sample in samples if not isinstance(sample, Drop)]
    batch = getattr(stage, "batch", None)
    results = iter(batch(alive) if batch is not None and alive else map(stage, alive))
    return [sample if isinstance(sample, Drop) else _named(next(results), stage_name(stage)) for sample in samples]


def _named(result: Sample | Drop | None, name: str) -> Sample | Drop:
    if result is None:
        return Drop(f"{name}: left out")
    return Drop(f"{name}: {result.reason}") if isinstance(result, Drop) else result
