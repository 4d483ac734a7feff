"""Reads inputs of several formats as one: each file in its own format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.readers.reader import Drop, MalformedError, RawReader, Record, RecordPlace
from workbench.components.error_context import ErrorContext
from workbench.core.errors import WorkbenchError
from workbench.sequences.sequence import Sample


@dataclass(frozen=True)
class Several(RawReader):
    """`readers`, each of its own `files`, in the order of their first files.

    Gathered records (the captions of an image, the triples of an entity) stay separate between formats. Records that
    share a key are refused as usual.
    """

    readers: tuple[RawReader, ...]
    files: tuple[tuple[Path, ...], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", self.readers[0].kind)
        if self.readers[0].kind == "triples":
            found = ", ".join(
                f"{type(reader).__name__} ({files[0].name}{' ...' if len(files) > 1 else ''})"
                for reader, files in zip(self.readers, self.files, strict=True)
            )
            raise WorkbenchError(
                f"the triples of one graph have several formats: {found}. Name the files of one format, or add --format"
            )

    @property
    def shown_as(self) -> str:
        return f"formats {', '.join(reader.format_name() for reader in self.readers)}"

    def about(self) -> Mapping[str, Any]:
        return {name: value for reader in self.readers for name, value in reader.about().items()}

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        found = [path for reader, files in self._pairs() for path in reader.inputs(files)]
        return list(dict.fromkeys(found))

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        for number, (reader, files) in enumerate(self._pairs()):
            with ErrorContext(reader):
                for record in reader.records(files):
                    yield _with_reader(record, number)

    def records_from(self, place: RecordPlace) -> Iterator[Record]:
        return (_with_reader(record, place.reader) for record in self.readers[place.reader].records_from(place))

    def sample(self, record: Record) -> Sample | Drop:
        number, data = record.data
        with ErrorContext(self.readers[number]):
            return self.readers[number].read(record._replace(data=data))

    def stated(self) -> dict[str, Any]:
        return {type(reader).__name__: reader.stated() for reader in self.readers}

    def origin(self, record: Record) -> str:
        return "Several" if isinstance(record.data, MalformedError) else type(self.readers[record.data[0]]).__name__

    def may_name(self, path: Path) -> bool:
        return any(reader.may_name(path) for reader in self.readers)

    def _pairs(self) -> Iterator[tuple[RawReader, tuple[Path, ...]]]:
        return zip(self.readers, self.files, strict=True)


def _with_reader(record: Record, number: int) -> Record:
    """A record with the number of its reader; a malformed one stays as it is."""
    if isinstance(record.data, MalformedError):
        return record
    place = record.place and record.place._replace(reader=number)
    return record._replace(data=(number, record.data), place=place)
