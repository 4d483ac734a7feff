"""A chunk of raw records -> samples -> one finished shard for each split. This runs in a worker process."""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pipelines.preparing.splits import HELD_OUT_TAIL, MAIN, Splits, part_folder
from pipelines.preparing.uploads import CorpusUpload
from pipelines.readers.reader import LEFT_OUT, Drop, MalformedError, RawReader, Record, RecordPlace
from pipelines.stages import Stage, apply
from pipelines.stages.pair_filters import without_captions
from workbench.components.error_context import ErrorContext
from workbench.core.errors import WorkbenchError, unknown
from workbench.core.files.drafts import atomic, explained
from workbench.corpora.manifest import ShardInfo
from workbench.corpora.schema.schema import FIELDS, READING
from workbench.corpora.shards.writer import ShardWriter, finished_shard
from workbench.sequences.sequence import Sample

BLOCK = 32
SAID = 120
NUMBER = re.compile(r"\d+")
DROPPED = "dropped"


@dataclass(frozen=True)
class Limits:
    """The size of shards, and the part of them that is written.

    A shard has at most `shard_size` records and about `shard_bytes` bytes of
    raw input. At most `limit` records of the input are read. Of `part` i/n only each n-th shard is written."""

    shard_size: int = 5_000
    shard_bytes: int = 128 << 20
    limit: int | None = None
    part: str | None = None

    def __post_init__(self) -> None:
        for name in ("shard_size", "shard_bytes", "limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise WorkbenchError(f"--{name.replace('_', '-')} = {value}; it must be at least 1")
        number, parts = self._numbers
        if not 1 <= number <= parts:
            raise WorkbenchError(f"--part {self.part}: there are {parts} parts, from 1/{parts} to {parts}/{parts}")

    @property
    def _numbers(self) -> tuple[int, int]:
        number, _, parts = (self.part or "1/1").partition("/")
        return int(number), int(parts)

    def has(self, shard: int) -> bool:
        """Whether the shard of this number (from 0) belongs to this part."""
        number, parts = self._numbers
        return shard % parts == number - 1


class Repeated(NamedTuple):
    """Duplicates in a chunk: the drop reason by the record's place in the chunk, and for records that stay the numbers
    of their captions that other records have."""

    records: Mapping[int, str] = {}
    captions: Mapping[int, frozenset[int]] = {}


class RecordRange(NamedTuple):
    """Consecutive records of a file: the place of the first one, and their number."""

    place: RecordPlace
    records: int


class Chunk(NamedTuple):
    """Consecutive raw records, and which of them to drop. A chunk that is sent has `ranges` instead of records where
    the reader can begin again at their places."""

    number: int
    records: Sequence[Record]
    repeated: Repeated = Repeated()
    ranges: tuple[RecordRange, ...] = ()

    def to_send(self) -> Chunk:
        """The chunk as it is sent to a worker."""
        ranges: list[RecordRange] = []
        last: RecordPlace | None = None
        for record in self.records:
            if record.place is None:
                return self
            if last is not None and last.path == record.place.path and last.offset < record.place.offset:
                ranges[-1] = RecordRange(ranges[-1].place, ranges[-1].records + 1)
            else:
                ranges.append(RecordRange(record.place, 1))
            last = record.place
        if not ranges:  # it has no records, or is as it is sent
            return self
        return self._replace(records=[], ranges=tuple(ranges))

    def received(self, reader: RawReader) -> Chunk:
        """The chunk with its records, in a worker.

        Raises:
            WorkbenchError: a file has changed meanwhile.
        """
        if not self.ranges:
            return self
        records: list[Record] = []
        with _silent():
            for place, count in self.ranges:
                found = list(islice(reader.records_from(place), count))
                if len(found) < count:
                    raise WorkbenchError(f"{place.path} changed while it was read; run the command again")
                records += found
        return self._replace(records=records, ranges=())


@contextmanager
def _silent() -> Iterator[None]:
    """Within, readers log nothing: they have logged it when the chunk was cut."""
    logger = logging.getLogger("pipelines")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def cut_chunks(records: Iterator[Record], limits: Limits) -> Iterator[Chunk]:
    """Chunks of at most `shard_size` records; one ends when its records reach `shard_bytes`."""
    gathered: list[Record] = []
    size = number = 0
    for record in islice(records, limits.limit):
        gathered.append(record)
        size += record.size
        if len(gathered) == limits.shard_size or size >= limits.shard_bytes:
            yield Chunk(number, gathered)
            gathered, size, number = [], 0, number + 1
    if gathered:
        yield Chunk(number, gathered)


@dataclass(frozen=True)
class Conversion:
    """How a raw record becomes a sample.

    Args:
        reader: of the raw format.
        stages: applied to each sample in this order.
        meta: added to every sample's provenance.
        on_error: whether a record that does not fit its format stops the preparation, or is counted.
    """

    reader: RawReader
    stages: tuple[Stage, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    on_error: Literal["stop", "skip"] = "stop"

    @property
    def block(self) -> int:
        """The number of records that go through the stages together: `BLOCK`, or the least that a stage asks for."""
        return max([BLOCK, *(getattr(stage, "batch_size", 0) for stage in self.stages)])

    @property
    def device(self) -> str:
        """The device of the stages' models: auto, cpu or cuda."""
        return next((stage.device for stage in self.stages if hasattr(stage, "device")), "cpu")

    def samples(self, chunk: Chunk) -> Iterator[tuple[int, Sample | Drop]]:
        """The chunk's records after the stages, by their places in the chunk. Reasons of dropped records begin with the
        name of the stage."""
        for start in range(0, len(chunk.records), self.block):
            yield from enumerate(self._block(chunk, start), start)

    def _block(self, chunk: Chunk, start: int) -> list[Sample | Drop]:
        samples: list[Sample | Drop] = []
        for place in range(start, min(start + self.block, len(chunk.records))):
            reason = chunk.repeated.records.get(place)
            samples.append(self.read(chunk.records[place]) if reason is None else Drop(f"dedupe: {reason}"))
        for stage in self.stages:
            samples = apply(stage, samples)
        for place, captions in chunk.repeated.captions.items():
            sample = samples[place - start] if start <= place < start + len(samples) else None
            if sample is not None and not isinstance(sample, Drop):
                samples[place - start] = without_captions(sample, captions)
        return samples

    def read(self, record: Record) -> Sample | Drop:
        """A raw record as a sample with `meta`, before the stages; a malformed one raises, or is dropped."""
        name = self.reader.origin(record)
        try:
            with ErrorContext(self.reader):
                sample = self.reader.read(record)
        except MalformedError as error:
            if self.on_error == "stop":
                raise WorkbenchError(
                    f"{error}. Fix the input, or leave such records out with --on-error skip"
                ) from error
            return Drop(f"{name}: {error.reason}")
        if isinstance(sample, Drop):
            return replace(sample, reason=f"{name}: {sample.reason}")
        _check_returned(sample, name, record.where)
        if self.meta:
            sample["meta"] = {**self.meta, **sample.get("meta", {})}
        return sample


def _check_returned(sample: Sample, name: str, where: str) -> None:
    """
    Raises:
        WorkbenchError: the format returned an unknown field, or one of another type, which a stage could not read.
    """
    for known, value in sample.items():
        if known in READING:
            continue
        if known not in FIELDS:
            raise unknown("field", known, FIELDS, f"a sample of format {name}, {where}")
        if not isinstance(value, FIELDS[known].value.type):
            raise WorkbenchError(
                f"{where}: format {name} returns {known} of type {type(value).__name__}; it must be "
                f"{FIELDS[known].value.form}"
            )


class Outcome(NamedTuple):
    """A chunk's finished shards by split; `skipped` where they existed before. `warned` counts the warnings of
    libraries during the work, by their text."""

    number: int
    shards: dict[str, ShardInfo]
    skipped: bool
    warned: Mapping[str, int] = {}


@dataclass(frozen=True)
class ShardTask:
    """What a worker needs to write the shards of a chunk; each process receives it once.

    Args:
        output: the corpus's folder; held-out splits lie next to it.
        numbered_keys: samples are numbered instead of keeping their keys.
        log_drops: each dropped sample is a line of a file in the folder `DROPPED` of the corpus.
        upload: the store that finished shards go to.
    """

    conversion: Conversion
    kind: str
    output: Path
    splits: Splits
    numbered_keys: bool = False
    log_drops: bool = False
    upload: CorpusUpload | None = None

    def path(self, part: str, number: int) -> Path:
        """The path of a chunk's shard of a split."""
        return part_folder(self.output, part) / f"part-{number:06d}.tar"

    def finished(self, number: int) -> Outcome | None:
        """A chunk's outcome if all its shards are finished."""
        shards = {part: finished_shard(self.path(part, number)) for part in self.splits.parts}
        if any(info is None for info in shards.values()):
            return None
        return Outcome(number, {part: info for part, info in shards.items() if info is not None}, skipped=True)

    def remove(self, number: int) -> None:
        """Delete a chunk's shards."""
        for part in self.splits.parts:
            remove_shard(self.path(part, number))


def work(task: ShardTask, chunk: Chunk) -> Outcome:
    """Write the shards of a chunk, whole or not at all.

    Raises:
        WorkbenchError: a malformed record (unless skipped), a sample that breaks the schema, two records with the same
            key, or a full disk.
    """
    done = task.finished(chunk.number)
    if done is not None:
        return done
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            shards = _write(task, chunk.received(task.conversion.reader))
    except _AnotherCopyError as error:
        return error.outcome
    said = Counter(_said(each) for each in warned or () if not issubclass(each.category, DeprecationWarning))
    return Outcome(chunk.number, shards, skipped=False, warned=said)


class _AnotherCopyError(Exception):
    """Another worker has finished these shards meanwhile: this one was given up as lost, or that one was."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


def _write(task: ShardTask, chunk: Chunk) -> dict[str, ShardInfo]:
    """
    Raises:
        _AnotherCopyError: nothing of this copy is kept.
    """
    places: dict[str, str] = {}
    drops: list[dict[str, Any]] = []
    reader = type(task.conversion.reader).__name__
    with ExitStack() as stack:
        writers = {
            part: stack.enter_context(ShardWriter(task.path(part, chunk.number), kind=task.kind))
            for part in task.splits.parts
        }
        for place, sample in task.conversion.samples(chunk):
            where = chunk.records[place].where
            if isinstance(sample, Drop):
                writers[MAIN].drop(sample.reason, sample.count)
                drops.append({"record": where, "reason": sample.reason})
                continue
            key = f"{chunk.number:06d}-{place:06d}" if task.numbered_keys else sample["key"]
            _check_key(key, where, places)
            for reason, count in sample.get("meta", {}).get(LEFT_OUT, {}).items():
                writers[MAIN].drop(f"{reader}: {reason}", count)
            part, kept, lost = task.splits.place(sample)
            if lost:
                writers[MAIN].drop(HELD_OUT_TAIL, lost)
            writers[part].add(key, kept)
        done = task.finished(chunk.number)
        if done is not None:
            raise _AnotherCopyError(done)
        if task.log_drops:
            _log(task.output / DROPPED / f"part-{chunk.number:06d}.jsonl", drops)
    shards = {part: writer.info for part, writer in writers.items() if writer.info is not None}
    if task.upload is not None:
        for path in [task.output / DROPPED / f"part-{chunk.number:06d}.jsonl"] if task.log_drops else ():
            task.upload.put_file(path)
        for part in shards:
            task.upload.put_shard(part, task.path(part, chunk.number))
    return shards


def remove_shard(path: Path) -> None:
    """Delete a shard; its index first, as a shard without one is not finished."""
    path.with_suffix(".index").unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _said(warning: warnings.WarningMessage) -> str:
    """The library and the text of a warning without numbers, so that similar warnings are counted together."""
    place = Path(warning.filename)
    library = place.parts[place.parts.index("site-packages") + 1] if "site-packages" in place.parts else place.stem
    return f"{library}: {NUMBER.sub('...', str(warning.message))[:SAID]}"


def _log(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Written before the shard is finished, so that a run killed in between writes it again."""
    with explained(path):
        path.parent.mkdir(exist_ok=True)
    with atomic(path) as file:
        file.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())


def _check_key(key: str, where: str, places: dict[str, str]) -> None:
    if key in places:
        raise WorkbenchError(
            f"two records have the key {key!r}: {places[key]} and {where}. Fix the ids, or number the records with "
            "--numbered-keys"
        )
    places[key] = where
