"""A preparation as a test writes it: what `check` is asked, as one value that can be run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.preparing.chunks import Conversion, Limits
from pipelines.preparing.duplicates import Duplicates
from pipelines.preparing.engines.engine import Engine
from pipelines.preparing.engines.local import LocalEngine
from pipelines.preparing.progress import Preparation
from pipelines.preparing.runner import check, run
from pipelines.preparing.splits import Splits
from pipelines.preparing.workspace import CorpusFacts
from pipelines.readers.reader import RawReader


@dataclass(frozen=True)
class Job:
    """A reader, the kind and the folder of the corpus, and what happens to every record."""

    reader: RawReader
    kind: str
    output: Path
    stages: tuple[Any, ...] = ()
    splits: Mapping[str, float] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    dedupe: bool = False
    numbered_keys: bool = False
    on_error: Any = "stop"


def prepare(
    job: Job,
    inputs: Sequence[Path],
    limits: Limits,
    *,
    workers: int = 1,
    engine: Engine | None = None,
    command: str = "",
    source: Mapping[str, Any] | None = None,
) -> Preparation:
    """Check, then run, on `workers` processes of this machine or on another engine."""
    plan = check(
        Conversion(job.reader, job.stages, job.meta, job.on_error),
        inputs,
        job.output,
        job.kind,
        splits=Splits(job.splits),
        duplicates=Duplicates(job.dedupe),
        limits=limits,
        engine=engine or LocalEngine(workers),
        numbered_keys=job.numbered_keys,
        facts=CorpusFacts(command, source=source or {}),
    )
    return run(plan)
