"""A chunk of raw records -> one finished shard of each part. This is what runs in a worker process."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pipelines.preparing.inductive import HELD_OUT_TAIL, part_of_entity, without_held_out
from pipelines.preparing.splits import MAIN, part_folder, part_of
from pipelines.readers.reader import LEFT_OUT, Drop, MalformedError, RawReader, Record
from pipelines.stages import Stage, apply
from pipelines.stages.clean_captions import without_captions
from workbench.corpora.manifest import ShardInfo
from workbench.corpora.writer import ShardWriter, finished_shard
from workbench.errors import WorkbenchError
from workbench.files.drafts import atomic, explained
from workbench.parts.blame import Blame
from workbench.sequences.sequence import Sample

BLOCK = 32
SAID = 120
NUMBER = re.compile(r"\d+")
DROPPED = "dropped"


@dataclass(frozen=True)
class Job:
    """What happens to every record; all of it goes to the worker processes.

    `splits` are shares of the documents by the part's name, `own_splits` parts that the records say themselves.
    With `inductive`, records are entities of a graph, and held-out ones are in no triple of the others
    (`pipelines.preparing.inductive`).
    `meta` is added to every sample's provenance; `about` are facts on the whole corpus (see `Manifest`).
    `dedupe` drops samples with the same text or image as an earlier one, `near_images` those whose image differs from
    an earlier one in so many of its hash's bits at most, `near_captions` captions that have that share of an earlier
    one (`pipelines.preparing.near_duplicates`). `on_error` says whether a record that does not
    fit its format stops the run or is counted. With `log_drops` each sample that is left out is a line of a file in
    the folder `DROPPED` of the corpus. `passed_over` are the files in the inputs' folders that are not read, by kind.
    """

    reader: RawReader
    kind: str
    output: Path
    stages: tuple[Stage, ...] = ()
    splits: Mapping[str, float] = field(default_factory=dict)
    own_splits: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    dedupe: bool = False
    near_images: int | None = None
    near_captions: float | None = None
    numbered_keys: bool = False
    on_error: Literal["stop", "skip"] = "stop"
    log_drops: bool = False
    inductive: bool = False
    passed_over: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def parts(self) -> list[str]:
        return [MAIN, *self.splits, *self.own_splits]

    @property
    def looks_for_repeated(self) -> bool:
        return self.dedupe or self.near_images is not None or self.near_captions is not None

    @property
    def block(self) -> int:
        """How many records go through the stages at once: `BLOCK`, or what a stage wants at least."""
        return max([BLOCK, *(getattr(stage, "batch_size", 0) for stage in self.stages)])


class Repeated(NamedTuple):
    """What other records of the input have, too: the reason by the record's place in its chunk, and of records that
    stay the numbers of captions that others have."""

    records: Mapping[int, str] = {}
    captions: Mapping[int, frozenset[int]] = {}


class Chunk(NamedTuple):
    """Consecutive raw records, and what of them to leave out."""

    number: int
    records: Sequence[Record]
    repeated: Repeated = Repeated()


class Outcome(NamedTuple):
    """A chunk's finished shards by part; `skipped` where they were there already. `warned` counts what libraries warned
    of while they were made, by their words."""

    number: int
    shards: dict[str, ShardInfo]
    skipped: bool
    warned: Mapping[str, int] = {}


def cut_chunks(
    records: Iterator[Record], shard_size: int, shard_bytes: int, limit: int | None = None
) -> Iterator[Chunk]:
    """Chunks of at most `shard_size` records; one ends when its records reach `shard_bytes`."""
    gathered: list[Record] = []
    size = number = 0
    for record in islice(records, limit):
        gathered.append(record)
        size += record.size
        if len(gathered) == shard_size or size >= shard_bytes:
            yield Chunk(number, gathered)
            gathered, size, number = [], 0, number + 1
    if gathered:
        yield Chunk(number, gathered)


def shard_path(job: Job, part: str, number: int) -> Path:
    """Where a chunk's shard of a part lies."""
    return part_folder(job.output, part) / f"part-{number:06d}.tar"


def remove_shard(path: Path) -> None:
    """Take a shard away; first its index, without which it is not finished."""
    path.with_suffix(".index").unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def finished(job: Job, number: int) -> Outcome | None:
    """A chunk's outcome where all of its shards are finished."""
    shards = {part: finished_shard(shard_path(job, part, number)) for part in job.parts}
    if any(info is None for info in shards.values()):
        return None
    return Outcome(number, {part: info for part, info in shards.items() if info is not None}, skipped=True)


def work(job: Job, chunk: Chunk) -> Outcome:
    """Write the shards of a chunk, whole or not at all.

    Raises:
        WorkbenchError: a malformed record (unless skipped), a sample that breaks the schema, two records with the same
            key, or a full disk.
    """
    done = finished(job, chunk.number)
    if done is not None:
        return done
    paths = {part: shard_path(job, part, chunk.number) for part in job.parts}
    places: dict[str, str] = {}
    drops: list[dict[str, Any]] = []
    with ExitStack() as stack:
        warned = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        writers = {part: stack.enter_context(ShardWriter(path, kind=job.kind)) for part, path in paths.items()}
        for start in range(0, len(chunk.records), job.block):
            for place, sample in enumerate(samples_of(job, chunk, start), start):
                if isinstance(sample, Drop):
                    writers[MAIN].drop(sample.reason, sample.count)
                    drops.append({"record": chunk.records[place].where, "reason": sample.reason})
                    continue
                key = f"{chunk.number:06d}-{place:06d}" if job.numbered_keys else sample["key"]
                _check_key(key, chunk.records[place].where, places)
                for reason, count in sample.get("meta", {}).get(LEFT_OUT, {}).items():
                    writers[MAIN].drop(f"{type(job.reader).__name__}: {reason}", count)
                part, kept, lost = _placed(job, sample)
                if lost:
                    writers[MAIN].drop(HELD_OUT_TAIL, lost)
                writers[part].add(key, kept)
        if job.log_drops:
            _log(job.output / DROPPED / f"part-{chunk.number:06d}.jsonl", drops)
    shards = {part: writer.info for part, writer in writers.items() if writer.info is not None}
    said = Counter(_said(each) for each in warned or () if not issubclass(each.category, DeprecationWarning))
    return Outcome(chunk.number, shards, skipped=False, warned=said)


def _said(warning: warnings.WarningMessage) -> str:
    """Who warns of what, numbers aside, so that warnings of the same are one."""
    place = Path(warning.filename)
    library = place.parts[place.parts.index("site-packages") + 1] if "site-packages" in place.parts else place.stem
    return f"{library}: {NUMBER.sub('...', str(warning.message))[:SAID]}"


def samples_of(job: Job, chunk: Chunk, start: int) -> list[Sample | Drop]:
    """Up to `job.block` records, read and sent through the stages; reasons are prefixed with where they arose."""
    samples: list[Sample | Drop] = []
    for place in range(start, min(start + job.block, len(chunk.records))):
        reason = chunk.repeated.records.get(place)
        samples.append(read(job, chunk.records[place]) if reason is None else Drop(f"dedupe: {reason}"))
    for stage in job.stages:
        samples = apply(stage, samples)
    for place, captions in chunk.repeated.captions.items():
        sample = samples[place - start] if start <= place < start + len(samples) else None
        if sample is not None and not isinstance(sample, Drop):
            samples[place - start] = without_captions(sample, captions)
    return samples


def read(job: Job, record: Record) -> Sample | Drop:
    """A raw record as a sample with the job's provenance; a malformed one raises or is dropped as the job says."""
    name = job.reader.origin(record)
    try:
        with Blame(job.reader):
            sample = job.reader.read(record)
    except MalformedError as error:
        if job.on_error == "stop":
            raise WorkbenchError(f"{error}. Mend the input, or leave such records out with --on-error skip") from error
        return Drop(f"{name}: {error.reason}")
    if isinstance(sample, Drop):
        return replace(sample, reason=f"{name}: {sample.reason}")
    if job.meta:
        sample["meta"] = {**job.meta, **sample.get("meta", {})}
    return sample


def _placed(job: Job, sample: Sample) -> tuple[str, Sample, int]:
    """A sample's part, what of it goes there, and how many of its triples don't."""
    if not job.inductive:
        return part_of(sample, job.splits, job.own_splits), sample, 0
    return part_of_entity(str(sample["id"]), job.splits), *without_held_out(sample, job.splits)


def _log(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Written before the shard is finished: whoever was killed between writes it again."""
    with explained(path):
        path.parent.mkdir(exist_ok=True)
    with atomic(path) as file:
        file.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())


def _check_key(key: str, where: str, places: dict[str, str]) -> None:
    if key in places:
        raise WorkbenchError(
            f"two records have the key {key!r}: {places[key]} and {where}. Mend the ids, or number the records with "
            "--numbered-keys"
        )
    places[key] = where
