"""The parallel runner: chunks of raw records -> one shard each, on this machine's processes.

What a chunk holds depends on the inputs and the options alone, so the corpus is the same for any number of workers,
and a run that was stopped goes on where it was: the shards that are finished are skipped.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.chunks import Chunk, Job, Outcome, cut_chunks, finished, work
from pipelines.duplicates import check_keys, find_duplicates
from pipelines.processes import each
from pipelines.progress import Meter, console
from pipelines.readers.reader import Record
from pipelines.splits import MAIN
from pipelines.workspace import Workspace
from workbench.blame import Blame
from workbench.corpora.manifest import Manifest, finish_corpus
from workbench.errors import WorkbenchError
from workbench.folder_lock import locked
from workbench.stopping import Ended

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """How the work is cut: `workers` processes (1 = this one), shards of at most `shard_size` records and about
    `shard_bytes` bytes of raw input, at most `limit` records of the input."""

    workers: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    shard_size: int = 5_000
    shard_bytes: int = 128 << 20
    limit: int | None = None

    def __post_init__(self) -> None:
        for name in ("workers", "shard_size", "shard_bytes", "limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise WorkbenchError(f"--{name.replace('_', '-')} = {value}; it must be at least 1")


@dataclass(frozen=True)
class Result:
    """What a preparation did. `manifests` and `folders` have one entry per part (`""` is the corpus itself).

    `dropped` counts by "Stage: reason"; `read` is the number of raw records; `seconds` is the time of this call and
    `skipped` the number of shards that were there already.
    """

    manifests: dict[str, Manifest]
    folders: dict[str, Path]
    dropped: dict[str, int]
    seconds: float
    skipped: int = 0

    @property
    def read(self) -> int:
        return sum(m.records for m in self.manifests.values()) + sum(self.dropped.values())

    @property
    def rate(self) -> float:
        """Raw records per second, of this call."""
        return self.read / max(self.seconds, 1e-9)


def prepare(
    job: Job, inputs: Sequence[Path], limits: Limits, *, command: str = "", source: Mapping[str, Any] | None = None
) -> Result:
    """Turn raw inputs into a corpus (and its held-out parts).

    `source` are facts on the inputs for corpus.json (licence, url). With several workers a script that calls this
    needs the usual `if __name__ == "__main__":`, as processes are spawned.

    Raises:
        WorkbenchError: the inputs are empty or damaged, everything was dropped, two records share a key, or the output
            folder belongs to another preparation, or one is at work in it.
        KeyboardInterrupt, Ended: on Ctrl-C, or within `workbench.stopping.ending` on another signal, after the shards
            under way were finished.
    """
    started = time.monotonic()
    space = Workspace(job, inputs, limits, command, source or {})
    complete = space.complete()
    if complete is not None:
        space.tidy()
        log.info("%s is complete already", job.output)
        return Result(complete, space.folders, complete[""].dropped, time.monotonic() - started, _shards(complete))
    with locked(job.output):
        space.open()
        try:
            with _interruptible(job.output), Meter(job.output.name) as meter:
                outcomes = _run(job, inputs, limits, meter)
            manifests = _finish(job, space, outcomes)
        except BaseException:
            space.abandon()
            raise
        space.close()
    skipped = sum(outcome.skipped for outcome in outcomes)
    return Result(manifests, space.folders, manifests[""].dropped, time.monotonic() - started, skipped)


def _finish(job: Job, space: Workspace, outcomes: Sequence[Outcome]) -> dict[str, Manifest]:
    """Write the corpus.json of every part with a record; the corpus's own comes last, as it says that all is done."""
    shards = {part: [outcome.shards[part] for outcome in outcomes] for part in space.folders}
    check_keys([space.folders[part] / info.name for part, infos in shards.items() for info in infos])
    for part, infos in shards.items():
        if part != MAIN and not any(info.records for info in infos):
            log.warning("the part %s got none of the records; no corpus was written for it", part)
    manifests = {
        part: finish_corpus(
            space.folders[part], kind=job.kind, shards=infos, provenance=space.provenance(part), about=job.about
        )
        for part, infos in reversed(shards.items())
        if part == MAIN or any(info.records for info in infos)
    }
    return dict(reversed(manifests.items()))


def _run(job: Job, inputs: Sequence[Path], limits: Limits, meter: Meter) -> list[Outcome]:
    """The outcomes of all chunks, in order."""

    def records() -> Iterator[Record]:
        with Blame(job.reader):
            yield from job.reader.records(inputs)

    def chunks() -> Iterator[Chunk]:
        return cut_chunks(records(), limits.shard_size, limits.shard_bytes, limits.limit)

    duplicates: dict[int, frozenset[int]] = {}
    if job.dedupe:
        meter.say("looking for duplicates")
        duplicates = find_duplicates(job, chunks(), limits.workers)
    outcomes = []
    for outcome in each(work, job, (_to_do(job, c, duplicates) for c in chunks()), limits.workers):
        outcomes.append(outcome)
        infos = outcome.shards.values()
        meter.add(sum(i.records for i in infos), sum(sum(i.dropped.values()) for i in infos))
    if not outcomes:
        raise WorkbenchError(f"the input holds no record ({', '.join(map(str, inputs))}); nothing was written")
    return outcomes


def _to_do(job: Job, chunk: Chunk, duplicates: Mapping[int, frozenset[int]]) -> Chunk:
    """The chunk as a worker needs it: without its records where its shards are finished."""
    if finished(job, chunk.number) is not None:
        return Chunk(chunk.number, [])
    return chunk._replace(duplicates=duplicates.get(chunk.number, frozenset()))


def _shards(manifests: Mapping[str, Manifest]) -> int:
    return len(manifests[""].shards)


@contextmanager
def _interruptible(output: Path) -> Iterator[None]:
    """What ends the run from outside says how to go on."""
    try:
        yield
    except (KeyboardInterrupt, Ended):
        console.print(f"stopped; the finished shards of {output} are kept: run the same command again to go on")
        raise
