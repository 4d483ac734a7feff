"""The base class of raw formats: a format is one file with one `RawReader`.

The work has two halves. `records` runs once, in the parent process, and only finds the beginnings and ends of records.
`sample` runs in the worker processes and does the expensive work (parsing, loading an image).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pipelines.sources.columnar import first_row, is_columnar
from pipelines.sources.files import encoding_advice, files, lines, plain_suffix
from workbench.core.errors import WorkbenchError
from workbench.core.files.text_files import parse_json
from workbench.sequences.sequence import Sample

PEEK_LINES = 50
PEEK_BYTES = 1 << 16
PEEK_FIRST_LINE = 1 << 24


LEFT_OUT = "left_out"
"""Key of `meta`: how many items of a record a reader dropped, by reason. The runner counts them."""


class Match(IntEnum):
    """How sure a format is of an input; the surest one reads it (`pipelines.readers.formats`)."""

    NO = 0
    FALLBACK = 1
    """It can be read, but without evidence; ignored if another format has the file's suffix."""
    LOOKS = 2
    """It looks like the format, and may look like others; its name is no evidence."""
    SUFFIX = 3
    """Its name is that of the format's files, and the content does not contradict it."""
    CONTENT = 4
    """It is unmistakable: no other format looks like it. True means the same."""


class RecordPlace(NamedTuple):
    """Where a reader can begin again (`RawReader.records_from`), so that a worker reads a chunk by itself.

    `offset` is that of the record's first byte, or its row in a table; `number` is that of its first line. `reader` is
    the number of the format, where the inputs have several.
    """

    path: Path
    offset: int
    number: int
    reader: int = 0


class Record(NamedTuple):
    """A raw record: `data` is the small, picklable argument of `RawReader.sample`; `size` is in bytes; `where` names
    its place for people; `place` is None where the reader cannot begin again."""

    data: Any
    size: int
    where: str
    place: RecordPlace | None = None


@dataclass(frozen=True)
class Drop:
    """A sample that a reader or a stage drops, and the reason; the runner counts them by reason.

    A drop may have a `count`: rows that never become records of their own (triples).
    """

    reason: str
    count: int = 1


class MalformedError(WorkbenchError):
    """A record that does not fit its format. It stops the run, or is counted if the user chose to skip."""

    def __init__(self, reason: str, where: str, found: str = "") -> None:
        super().__init__(reason, where, found)
        self.reason = reason
        self.where = where
        self.found = found

    def __str__(self) -> str:
        detail = f" ({self.found})" if self.found else ""
        return f"{self.where}: {self.reason}{detail}"


class Malformed(list[MalformedError]):
    """Collects records that do not fit their format, so that reading continues: `with malformed:` collects the error
    raised inside, and `records` yields the collected ones, which the runner counts or stops at."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, MalformedError):
            self.append(error)
        return isinstance(error, MalformedError)

    def records(self) -> Iterator[Record]:
        while self:
            error = self.pop(0)
            yield Record(error, 0, error.where)


@dataclass(frozen=True)
class Peek:
    """The beginning of an input, for detecting its format: the `names` in a folder, the first lines of a file.

    `inputs` are all inputs that were named together, including itself.
    """

    path: Path
    names: frozenset[str] = frozenset()
    inputs: tuple[Path, ...] = ()
    head: list[str] = field(default_factory=list)

    @property
    def suffix(self) -> str:
        return plain_suffix(self.path)

    @property
    def is_folder(self) -> bool:
        return self.path.is_dir()

    @property
    def text(self) -> str:
        return "\n".join(self.head)

    @property
    def is_empty(self) -> bool:
        return not self.path.stat().st_size if is_columnar(self.path) else not self.text.strip()

    @cached_property
    def row(self) -> dict[str, Any]:
        """The first line, element of a list or row of a table as a JSON object; empty if it is not one.

        Raises:
            WorkbenchError: a table of Parquet or Arrow that cannot be read.
        """
        if not self.is_folder and is_columnar(self.path):
            return {} if self.is_empty else first_row(self.path)
        text = self.text.lstrip()
        try:
            if text.startswith("["):
                row, _ = json.JSONDecoder().raw_decode(text[1:].lstrip())
            else:
                row = parse_json(text.partition("\n")[0])
        except (ValueError, RecursionError):
            return {}
        return row if isinstance(row, dict) else {}

    def has_key(self, name: str) -> bool:
        """Whether the first bytes have this JSON key anywhere."""
        return re.search(rf'"{name}"\s*:', self.text) is not None


def peek(path: Path, inputs: Sequence[Path] = ()) -> Peek:
    """Look at the beginning of a file, or at the names in a folder."""
    if path.is_dir():
        return Peek(path, frozenset(p.name for p in path.iterdir()), tuple(inputs))
    head: list[str] = []
    size = 0
    if is_columnar(path):
        return Peek(path, inputs=tuple(inputs))
    for number, line in lines(path):
        head.append(line[: PEEK_BYTES if head else PEEK_FIRST_LINE].decode("utf-8", errors="replace"))
        size += len(line)
        if number >= PEEK_LINES or size >= PEEK_BYTES:
            break
    return Peek(path, inputs=tuple(inputs), head=head)


@dataclass(frozen=True)
class RawReader:
    """A raw format. A subclass is a frozen dataclass whose fields are its options (`--option name=value`).

    The first sentence of its file's docstring describes it in lists of formats. A class with neither `suffixes` nor
    `detect` of its own is not a format, but a base class.
    """

    kind: ClassVar[str] = ""
    suffixes: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def format_name(cls) -> str:
        """The name of the format: that of its file with dashes, or the import path of a user's own."""
        package, _, name = cls.__module__.rpartition(".")
        shipped = package.startswith(f"{__package__}.")
        return name.replace("_", "-") if shipped else f"{cls.__module__}:{cls.__qualname__}"

    @property
    def shown_as(self) -> str:
        """Its name for messages, also in other processes (`workbench.components.build_context.named`)."""
        return f"format {self.format_name()!r}"

    @classmethod
    def detect(cls, source: Peek) -> Match | bool:
        """How sure it is that the input is of this format; by default decided by the file's suffix."""
        return cls.likely(source, source.suffix in cls.suffixes)

    @classmethod
    def likely(cls, source: Peek, looks: bool) -> Match:
        """The match of an input that `looks` right, but may look like other formats, too."""
        if not looks or source.is_folder:
            return Match.NO
        return Match.SUFFIX if source.suffix in cls.suffixes else Match.LOOKS

    def stated(self) -> dict[str, Any]:
        """The options as plain values; a preparation that resumes compares them."""
        return asdict(self)

    def origin(self, record: Record) -> str:
        """The name of the format in the counts of dropped records."""
        return type(self).__name__

    def may_name(self, path: Path) -> bool:
        """Whether a file of an input folder is named by records, as images are; then it does not count as skipped."""
        return False

    def about(self) -> Mapping[str, Any]:
        """Facts on the whole corpus for its corpus.json (`Manifest.about`): the extractor of its features."""
        return {}

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        """All files that decide the output of `records`; their identity is in the run's fingerprint."""
        return files(paths, self.suffixes)

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        """The raw records, in a fixed order, streaming."""
        raise NotImplementedError(f"{type(self).__name__} must define records")

    def records_from(self, place: RecordPlace) -> Iterator[Record]:
        """The records of one file from a place on, as `records` yields them; for readers whose records have places."""
        raise NotImplementedError(f"{type(self).__name__} yields records with places, and must define records_from")

    def sample(self, record: Record) -> Sample | Drop:
        """A record as a sample (see docs/samples.md).

        Raises:
            MalformedError: the record does not fit the format.
        """
        raise NotImplementedError(f"{type(self).__name__} must define sample")

    def read(self, record: Record) -> Sample | Drop:
        """As `sample`, for a record that `records` yielded.

        Raises:
            MalformedError: `records` or `sample` found that it does not fit the format.
        """
        if isinstance(record.data, MalformedError):
            raise record.data
        return self.sample(record)

    def samples(self, paths: Sequence[Path]) -> Iterator[Sample]:
        """All samples, in one process, without the dropped ones."""
        for record in self.records(paths):
            sample = self.read(record)
            if not isinstance(sample, Drop):
                yield sample


def parse_text(raw: bytes, where: str) -> str:
    """UTF-8 to text.

    Raises:
        MalformedError: it is none.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        found = f"{error.reason} at column {error.start}; {encoding_advice(raw)}"
        raise MalformedError("not valid UTF-8", where, found) from error


def parse_row(raw: bytes | str | dict[str, Any], where: str) -> dict[str, Any]:
    """The object in a line of a JSON lines file; a row of a table is returned unchanged.

    Raises:
        MalformedError: not UTF-8, not JSON, not an object, or half a character (an unpaired surrogate).
    """
    if isinstance(raw, dict):
        return raw
    try:
        row = parse_json(raw)
    except UnicodeDecodeError as error:
        raise MalformedError("not valid UTF-8", where, str(error)) from error
    except json.JSONDecodeError as error:
        raise MalformedError("not a line of JSON", where, f"{error.msg} at column {error.colno}") from error
    if "\\ud" in (raw.decode() if isinstance(raw, bytes) else raw).lower():
        check_pairs(row, where)
    if not isinstance(row, dict):
        raise MalformedError("a line must be a JSON object", where, f"found {type(row).__name__}")
    return row


def check_pairs(row: Any, where: str) -> None:
    """Refuses unpaired surrogates, which JSON can encode if a text was cut inside a character; no text can hold them.

    Raises:
        MalformedError: there is one in a value of JSON.
    """
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        found = f"\\u{ord(error.object[error.start]):x}"
        raise MalformedError("half a character, an unpaired surrogate", where, found) from error


def as_object(row: Any, where: str) -> dict[str, Any]:
    """A row of a list as the JSON object that it should be.

    Raises:
        MalformedError: it is none.
    """
    if not isinstance(row, dict):
        raise MalformedError("a row must be a JSON object", where, f"found {type(row).__name__}")
    return row


def require(row: dict[str, Any], name: str, kind: type | tuple[type, ...], where: str) -> Any:
    """A field of a row, checked.

    Raises:
        MalformedError: the field is missing or of another type (names the fields there are; true and false are no
            numbers), or a text that holds half a character.
    """
    if name not in row:
        raise MalformedError(f"no field {name!r}", where, f"fields: {', '.join(row) or 'none'}")
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(row[name], kinds) or (isinstance(row[name], bool) and bool not in kinds):
        raise MalformedError(f"field {name!r} has the wrong type", where, f"found {type(row[name]).__name__}")
    if isinstance(row[name], str) and not row[name].isascii():
        check_pairs(row[name], where)
    return row[name]
