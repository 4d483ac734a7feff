"""The parallel runner: chunks of raw records -> one shard each, on this machine's processes.

What a chunk holds depends on the inputs and the options alone, so the corpus is the same for any number of workers,
and a run that was stopped goes on where it was: the shards that are finished are skipped.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.preparing.chunks import (
    Chunk,
    Job,
    Outcome,
    Repeated,
    cut_chunks,
    finished,
    read,
    remove_shard,
    shard_path,
    work,
)
from pipelines.preparing.duplicates import check_keys, find_repeated
from pipelines.preparing.limits import Limits
from pipelines.preparing.media_versions import MediaVersions
from pipelines.preparing.preparation import Preparation
from pipelines.preparing.processes import each
from pipelines.preparing.progress import ProgressBar, console
from pipelines.preparing.splits import MAIN
from pipelines.preparing.workspace import Workspace
from pipelines.readers.reader import MalformedError, Record
from workbench.corpora.manifest import Manifest, finish_corpus
from workbench.errors import WorkbenchError
from workbench.files.lock import locked
from workbench.parts.blame import Blame
from workbench.processes.ending import Ended

log = logging.getLogger(__name__)


class NothingLeftError(WorkbenchError):
    """All records went to held-out parts; the same command would come to the same end."""


def prepare(
    job: Job, inputs: Sequence[Path], limits: Limits, *, command: str = "", source: Mapping[str, Any] | None = None
) -> Preparation:
    """Turn raw inputs into a corpus (and its held-out parts).

    `source` are facts on the inputs for corpus.json (licence, url). With several workers a script that calls this
    needs the usual `if __name__ == "__main__":`, as processes are spawned.

    Raises:
        WorkbenchError: the inputs are empty or damaged, everything was dropped, two records share a key, the output
            folder belongs to another preparation, or one is at work in it, or it lies inside of an input.
        KeyboardInterrupt, Ended: on Ctrl-C, or within `workbench.processes.ending.ending` on another signal, after the
        shards
            under way were finished.
    """
    started = time.monotonic()
    check_beside(job.output, inputs)
    space = Workspace(job, inputs, limits, command, source or {})
    complete = space.complete()
    if complete is not None:
        space.tidy()
        return _found(complete, space, started)
    with locked(job.output):
        complete = space.complete()  # as another process may have left it since
        if complete is not None:
            return _found(complete, space, started)
        space.open()
        try:
            with ProgressBar(job.output.name) as meter:
                outcomes = _run(job, inputs, limits, meter)
            manifests = _finish(job, space, outcomes)
        except BaseException as error:
            kept = space.abandon(finished=isinstance(error, NothingLeftError))
            if isinstance(error, KeyboardInterrupt | Ended):
                _say_stopped(job.output, kept)
            raise
        space.close()
    skipped = sum(outcome.skipped for outcome in outcomes)
    return Preparation(manifests, space.folders, manifests[""].dropped, time.monotonic() - started, skipped)


def check_beside(output: Path, inputs: Sequence[Path]) -> None:
    """
    Raises:
        WorkbenchError: the output would be read as an input by the next run.
    """
    within = next(
        (place for place in inputs if place.is_dir() and output.resolve().is_relative_to(place.resolve())), None
    )
    if within is not None:
        raise WorkbenchError(
            f"--output {output} lies inside of the input {within}, which is read; choose a folder beside it"
        )


def _found(complete: dict[str, Manifest], space: Workspace, started: float) -> Preparation:
    """What an earlier run made."""
    log.info("%s is complete already", space.job.output)
    shards = len(complete[MAIN].shards)
    return Preparation(complete, space.folders, complete[MAIN].dropped, time.monotonic() - started, shards)


def _finish(job: Job, space: Workspace, outcomes: Sequence[Outcome]) -> dict[str, Manifest]:
    """Write the corpus.json of every part with a record; the corpus's own comes last, as it says that all is done."""
    space.check_unchanged()
    shards = {part: [outcome.shards[part] for outcome in outcomes] for part in space.folders}
    check_keys([space.folders[part] / info.name for part, infos in shards.items() for info in infos])
    _check_left({part: sum(info.records for info in infos) for part, infos in shards.items()}, job.output)
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


def _check_left(records: Mapping[str, int], output: Path) -> None:
    """
    Raises:
        NothingLeftError: parts have records, and the corpus itself has none.
    """
    held_out = {part: count for part, count in records.items() if part != MAIN and count}
    if held_out and not records[MAIN]:
        told = ", ".join(f"{part}: {count:,}" for part, count in held_out.items())
        raise NothingLeftError(
            f"{output}: no record is left for the corpus itself, as all that were kept went to held-out parts ({told})"
            "; hold out smaller shares, or give more records. Nothing was written"
        )


def _run(job: Job, inputs: Sequence[Path], limits: Limits, meter: ProgressBar) -> list[Outcome]:
    """The outcomes of all chunks, in order."""

    def records() -> Iterator[Record]:
        with Blame(job.reader):
            for record in job.reader.records(inputs):
                if job.on_error == "stop" and isinstance(record.data, MalformedError):
                    read(job, record)  # stops here, and not once the chunk is full
                yield record

    def chunks() -> Iterator[Chunk]:
        return cut_chunks(records(), limits.shard_size, limits.shard_bytes, limits.limit)

    repeated: dict[int, Repeated] = {}
    if job.looks_for_repeated:
        meter.say("looking for duplicates")
        repeated = find_repeated(job, chunks(), limits.workers)
    outcomes = []
    media = MediaVersions(job.output)
    own = (_to_do(job, chunk, repeated, media) for chunk in chunks() if limits.has(chunk.number))
    for outcome in each(work, job, own, limits.workers):
        outcomes.append(outcome)
        infos = outcome.shards.values()
        meter.add(sum(i.records for i in infos), sum(sum(i.dropped.values()) for i in infos))
    for said, count in sum((Counter(outcome.warned) for outcome in outcomes), Counter[str]()).items():
        log.warning("a library warned %s times: %s", f"{count:,}", said)
    if not outcomes and limits.part is not None:
        raise WorkbenchError(
            f"--part {limits.part}: the input gives fewer shards than there are parts; take fewer, or a smaller "
            "--shard-size"
        )
    if not outcomes:
        shown = ", ".join(map(str, inputs[:3])) + (" ..." if len(inputs) > 3 else "")
        raise WorkbenchError(f"the input holds no record ({shown}); nothing was written")
    return outcomes


def _to_do(job: Job, chunk: Chunk, repeated: Mapping[int, Repeated], media: MediaVersions) -> Chunk:
    """The chunk as a worker needs it: without its records where its shards are finished, of the files as they are."""
    changed = media.changed(chunk)
    done = finished(job, chunk.number)
    if done is not None and not changed:
        return Chunk(chunk.number, [])
    if done is not None:
        log.warning("files of shard %d have changed since it was made; it is made again", chunk.number)
        for part in job.parts:
            remove_shard(shard_path(job, part, chunk.number))
    return chunk._replace(repeated=repeated.get(chunk.number, Repeated()))


def _say_stopped(output: Path, kept: bool) -> None:
    """What was ended from outside says how to go on."""
    if kept:
        console.print(f"stopped; the finished shards of {output} are kept: run the same command again to go on")
    else:
        console.print(f"stopped before a shard of {output} with a record was finished: nothing is kept")
