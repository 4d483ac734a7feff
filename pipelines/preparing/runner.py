"""The parallel runner: chunks of raw records -> one shard each, on the workers of an engine.

`check` makes a plan: it refuses whatever can be refused before the work, and writes nothing. `run` does the work.
The content of a chunk depends only on the inputs and the options, so the corpus is the same for any number of workers
and every engine. A run that was stopped resumes: finished shards are skipped.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.preparing.chunks import Chunk, Conversion, Limits, Outcome, Repeated, ShardTask, cut_chunks, work
from pipelines.preparing.duplicates import Duplicates, check_keys, find_repeated
from pipelines.preparing.engines.engine import Engine
from pipelines.preparing.engines.local import LocalEngine
from pipelines.preparing.parts import SPLIT_RECORDS, PartNotes
from pipelines.preparing.progress import Preparation, ProgressBar, records_of
from pipelines.preparing.splits import MAIN, Splits, part_folder
from pipelines.preparing.uploads import CorpusUpload
from pipelines.preparing.workspace import HASHES, CorpusFacts, MediaVersions, NothingLeftError, Workspace, digest
from pipelines.readers.reader import MalformedError, Record
from pipelines.stages import stage_name
from workbench.components.error_context import ErrorContext
from workbench.components.trust import code_checksums
from workbench.core.errors import WorkbenchError
from workbench.core.local_copies import with_urls
from workbench.corpora.manifest import Manifest, ShardInfo, finish_corpus
from workbench.corpora.overlap import shared_of_shards
from workbench.corpora.shards.index import ShardIndex

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PreparationPlan:
    """The plan of a preparation, which `run` executes.

    Args:
        inputs: the inputs of the reader.
        complete: the manifests by split if this very corpus is complete already.
    """

    inputs: Sequence[Path]
    task: ShardTask
    duplicates: Duplicates
    limits: Limits
    workspace: Workspace
    complete: dict[str, Manifest] | None
    engine: Engine

    @property
    def output(self) -> Path:
        """The folder of the corpus."""
        return self.task.output


class PlannedChunks:
    """The chunks of a preparation. The input is cut once, if its format can be read from the middle of a file.

    Workers in other processes receive a chunk as places in the inputs, where it has them, else with its records.
    """

    def __init__(self, plan: PreparationPlan) -> None:
        self.plan = plan
        self._placed: list[Chunk] | None = None
        """All chunks as places, once they are known."""
        notes = plan.workspace.notes
        if notes is not None:  # of --part: cut by the job that comes first
            self._placed = notes.chunks(self._cut)
            if self._placed is None:
                log.info(
                    "--part: this format cannot be read from the middle of a file; each job reads all of the input"
                )

    def every(self) -> Iterator[Chunk]:
        """All chunks, those of this job of --part first where that costs nothing."""
        if self._placed is not None:
            yield from sorted(self._placed, key=lambda chunk: not self.plan.limits.has(chunk.number))
            return
        placed: list[Chunk] = []
        for number, chunk in enumerate(self._cut()):
            sent = chunk.to_send()
            if sent.ranges and len(placed) == number:  # else records stay in memory with their chunk
                placed.append(sent)
            else:
                placed.clear()
            yield self.sent(chunk)
        self._placed = placed or None

    def own(self) -> Iterator[Chunk]:
        """The chunks of this job."""
        chunks = self._cut() if self._placed is None else self._placed
        return (chunk for chunk in chunks if self.plan.limits.has(chunk.number))

    def sent(self, chunk: Chunk) -> Chunk:
        """A chunk as the engine's workers receive it."""
        return chunk if self.plan.engine.in_process else chunk.to_send()

    def _cut(self) -> Iterator[Chunk]:
        """The raw records of the inputs, in chunks."""
        conversion = self.plan.task.conversion

        def records() -> Iterator[Record]:
            with ErrorContext(conversion.reader):
                for record in conversion.reader.records(self.plan.inputs):
                    if conversion.on_error == "stop" and isinstance(record.data, MalformedError):
                        conversion.read(record)  # stops here, and not once the chunk is full
                    yield record

        return cut_chunks(records(), self.plan.limits)


def check(
    conversion: Conversion,
    inputs: Sequence[Path],
    output: Path,
    kind: str,
    *,
    splits: Splits | None = None,
    duplicates: Duplicates | None = None,
    limits: Limits | None = None,
    engine: Engine | None = None,
    numbered_keys: bool = False,
    log_drops: bool = False,
    facts: CorpusFacts | None = None,
    upload: CorpusUpload | None = None,
) -> PreparationPlan:
    """The plan of a corpus (and its held-out splits) from raw inputs. Nothing is written.

    Args:
        output: the local folder of the work.
        upload: the store that the corpus is written to; its block is open (`CorpusUpload.held`).

    Raises:
        WorkbenchError: the output lies inside of an input, or its folder belongs to another preparation.
    """
    check_next_to(output, inputs)
    splits, duplicates, limits = splits or Splits(), duplicates or Duplicates(), limits or Limits()
    task = ShardTask(conversion, kind, output, splits, numbered_keys, log_drops, upload)
    options = _deciding(task, duplicates, limits)
    with ErrorContext(conversion.reader):
        files = conversion.reader.inputs(inputs)
    folders = {part: part_folder(output, part) for part in splits.parts}
    notes = None if limits.part is None else PartNotes(output, options, files)
    workspace = Workspace(folders, options, files, facts or CorpusFacts(), notes, upload)
    engine = engine or LocalEngine()
    return PreparationPlan(inputs, task, duplicates, limits, workspace, workspace.complete(), engine)


def check_next_to(output: Path, inputs: Sequence[Path]) -> None:
    """
    Raises:
        WorkbenchError: the output would be read as an input by the next run.
    """
    within = next(
        (place for place in inputs if place.is_dir() and output.resolve().is_relative_to(place.resolve())), None
    )
    if within is not None:
        raise WorkbenchError(f"--output {output} lies inside the input {within}; choose a folder outside of it")


def _deciding(task: ShardTask, duplicates: Duplicates, limits: Limits) -> dict[str, Any]:
    """All options that decide the corpus, besides the inputs, as plain JSON values (without the number of workers)."""
    conversion, splits = task.conversion, task.splits
    options: dict[str, Any] = {
        "format": type(conversion.reader).__name__,
        "format_options": conversion.reader.stated(),
        "stages": [[stage_name(stage), _fields(stage)] for stage in conversion.stages],
        "splits": dict(splits.shares),
        "meta": dict(conversion.meta),
        "dedupe": duplicates.exact,
        "numbered_keys": task.numbered_keys,
        "on_error": conversion.on_error,
        "shard_size": limits.shard_size,
        "shard_bytes": limits.shard_bytes,
        "limit": limits.limit,
    }
    # corpora of earlier versions have no such options
    if splits.own:
        options["own_splits"] = splits.own
    if duplicates.near_images is not None:
        options["near_images"] = duplicates.near_images
    if duplicates.near_captions is not None:
        options["near_captions"] = duplicates.near_captions
    if splits.inductive:
        options["inductive"] = True
    if limits.part is not None:
        options["part"] = limits.part
    code = code_checksums(f"{type(conversion.reader).__module__}:{type(conversion.reader).__name__}")
    if code:  # the code of a format of the user
        options["format_code"] = code
    decided: dict[str, Any] = with_urls(json.loads(json.dumps(options, default=str)))
    return decided


def _fields(stage: Any) -> dict[str, Any]:
    is_value = dataclasses.is_dataclass(stage) and not isinstance(stage, type)
    return {f.name: getattr(stage, f.name) for f in dataclasses.fields(stage) if f.compare} if is_value else {}


def run(plan: PreparationPlan) -> Preparation:
    """Run a plan: turn the raw inputs into a corpus.

    With several workers a script that calls this needs the usual `if __name__ == "__main__":`, as processes are
    spawned.

    Raises:
        WorkbenchError: the inputs are empty or damaged, everything was dropped, two records share a key, or another
            process works in the output folder, or has begun another preparation there since the check.
        KeyboardInterrupt, Ended: on Ctrl-C, or within `workbench.core.processes.signals.ending` on another signal,
            after the shards in progress were finished.
    """
    started = time.monotonic()
    with plan.workspace.held(plan.complete) as complete:
        if complete is not None:
            log.info("%s is already complete", plan.workspace.place)
            manifests, skipped = complete, len(complete[MAIN].shards)
        else:
            with plan.engine.opened(list(plan.workspace.folders.values())), ProgressBar(plan.output.name) as meter:
                outcomes = _outcomes(plan, meter)
            manifests, skipped = _finish(plan, outcomes), sum(outcome.skipped for outcome in outcomes)
    seconds = time.monotonic() - started
    return Preparation(
        manifests, plan.workspace.folders, manifests[MAIN].dropped, seconds, skipped, plan.workspace.place
    )


def _outcomes(plan: PreparationPlan, meter: ProgressBar) -> list[Outcome]:
    """The outcomes of all chunks, in order."""
    task, limits, chunks = plan.task, plan.limits, PlannedChunks(plan)
    repeated: dict[int, Repeated] = {}
    if plan.duplicates.wanted:
        meter.say("searching for duplicates")
        repeated = _repeated(plan, chunks)
    outcomes = []
    media = MediaVersions(plan.output)
    own = (chunks.sent(_to_do(task, chunk, repeated, media)) for chunk in chunks.own())
    for outcome in plan.engine.each(work, task, own, task.conversion.device):
        outcomes.append(outcome)
        infos = outcome.shards.values()
        meter.add(sum(i.records for i in infos), sum(records_of(i.dropped) for i in infos))
    for said, count in sum((Counter(outcome.warned) for outcome in outcomes), Counter[str]()).items():
        log.warning("a library warned %s times: %s", f"{count:,}", said)
    if not outcomes and limits.part is not None:
        raise WorkbenchError(
            f"--part {limits.part}: the input has fewer shards than parts; use fewer parts, or a smaller --shard-size"
        )
    if not outcomes:
        shown = ", ".join(map(str, plan.inputs[:3])) + (" ..." if len(plan.inputs) > 3 else "")
        raise WorkbenchError(f"the input holds no record ({shown}); nothing was written")
    return outcomes


def _repeated(plan: PreparationPlan, chunks: PlannedChunks) -> dict[int, Repeated]:
    """The duplicates in all chunks. A job of --part hashes its own chunks first; it finds the hashes of jobs ahead."""
    notes = plan.workspace.notes
    named = ((chunk, f"{chunk.number:06d}-{digest(chunk)}.npy") for chunk in chunks.every())
    folder = plan.output / HASHES if notes is None else notes.hashes
    if notes is not None and (plan.duplicates.near_images, plan.duplicates.near_captions) != (None, None):
        log.info("--part: each job compares all images and captions for near duplicates")
    return find_repeated(plan.duplicates, plan.task.conversion, named, plan.engine, folder)


def _to_do(task: ShardTask, chunk: Chunk, repeated: Mapping[int, Repeated], media: MediaVersions) -> Chunk:
    """The chunk for a worker: without its records if its shards are finished and its files are unchanged."""
    changed = media.changed(chunk)
    done = task.finished(chunk.number)
    if done is not None and not changed:
        return Chunk(chunk.number, [])
    if done is not None:
        log.warning("files of shard %d have changed since it was written; writing it again", chunk.number)
        task.remove(chunk.number)
    return chunk._replace(repeated=repeated.get(chunk.number, Repeated()))


def _finish(plan: PreparationPlan, outcomes: Sequence[Outcome]) -> dict[str, Manifest]:
    """Write the corpus.json of every split with a record; the corpus's own last, as it marks the end of the work."""
    space = plan.workspace
    space.check_unchanged()
    shards = {part: [outcome.shards[part] for outcome in outcomes] for part in space.folders}
    check_keys([space.folders[part] / info.name for part, infos in shards.items() for info in infos])
    is_part = plan.limits.part is not None
    if not is_part:
        check_left({part: sum(info.records for info in infos) for part, infos in shards.items()}, plan.output)
    for part, infos in shards.items():
        if part != MAIN and not any(info.records for info in infos):
            log.warning("the split %s got no records; no corpus was written for it", part)
    if not is_part:
        _warn_shared(space.folders, shards)
    kind, about = plan.task.kind, space.facts.about
    provenances = {part: space.provenance(part) for part in shards}
    if is_part and len(shards) > 1:
        held_out = {part: sum(info.records for info in infos) for part, infos in shards.items() if part != MAIN}
        provenances[MAIN][SPLIT_RECORDS] = held_out
    manifests = {
        part: finish_corpus(
            space.folders[part],
            kind=kind,
            shards=infos,
            provenance=provenances[part],
            about=about,
            may_be_empty=is_part,
        )
        for part, infos in reversed(shards.items())
        if part == MAIN or any(info.records for info in infos)
    }
    return dict(reversed(manifests.items()))


def _warn_shared(folders: Mapping[str, Path], shards: Mapping[str, Sequence[ShardInfo]]) -> None:
    """Warn about records of held-out splits whose text or image the corpus itself has too."""
    indexes = {part: [ShardIndex(folders[part] / info.index) for info in infos] for part, infos in shards.items()}
    for part, held_out in indexes.items():
        count = 0 if part == MAIN else shared_of_shards(held_out, indexes[MAIN])
        if count:
            log.warning(
                "%d of %d records of the split %s have a text or image that the corpus itself has too: numbers on them "
                "measure memorisation. Leave copies out with --dedupe",
                *(count, sum(index.records for index in held_out), part),
            )


def check_left(records: Mapping[str, int], output: Path) -> None:
    """
    Raises:
        NothingLeftError: splits have records, and the corpus itself has none.
    """
    held_out = {part: count for part, count in records.items() if part != MAIN and count}
    if held_out and not records[MAIN]:
        listed = ", ".join(f"{part}: {count:,}" for part, count in held_out.items())
        raise NothingLeftError(
            f"{output}: no record is left for the corpus itself, as all kept records went to held-out splits "
            f"({listed})"
            "; hold out smaller shares, or give more records. Nothing was written"
        )
