"""Stages: plain callables `stage(sample) -> sample | None | Drop(reason)` that run in the worker processes.

A stage is a frozen dataclass, or a function of a module, so that it can be sent to another process. Its options are in
the run's fingerprint, except fields with `compare=False`. It may change its sample in place. A stage that is faster on
several samples also has a method `batch(samples) -> list of the same`. Its attribute `batch_size` may name the
smallest useful number of samples.
"""

from __future__ import annotations

from collections.abc import Callable

from pipelines.readers.reader import Drop
from workbench.sequences.sequence import Sample

Stage = Callable[[Sample], Sample | Drop | None]


def stage_name(stage: Stage) -> str:
    """The name under which a stage's drops are counted: its class or function."""
    return getattr(stage, "__name__", type(stage).__name__)


def apply(stage: Stage, samples: list[Sample | Drop]) -> list[Sample | Drop]:
    """The samples after a stage, at their places; earlier drops stay."""
    alive = [sample for sample in samples if not isinstance(sample, Drop)]
    batch = getattr(stage, "batch", None)
    results = iter(batch(alive) if batch is not None and alive else map(stage, alive))
    return [sample if isinstance(sample, Drop) else _named(next(results), stage_name(stage)) for sample in samples]


def _named(result: Sample | Drop | None, name: str) -> Sample | Drop:
    if result is None:
        return Drop(f"{name}: left out")
    return Drop(f"{name}: {result.reason}") if isinstance(result, Drop) else result
