"""Plain text files. A document is a block between blank lines, a line, a whole file, or the text after a heading."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pipelines.readers.reader import Match, Peek, RawReader, Record, RecordPlace, parse_text
from pipelines.sources.files import files, placed_lines, record_key, stem
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Pattern
from workbench.sequences.sequence import Sample

WIKITEXT_HEADING = r" ?= [^=].* = ?"


@dataclass(frozen=True)
class PlainText(RawReader):
    """`document` is the unit of a document; `heading` is the regular expression of a line that begins one.

    A heading stays the first line of its document. With `document=heading`, text before the first heading is a
    document too.
    """

    kind: ClassVar[str] = "text"
    suffixes: ClassVar[tuple[str, ...]] = (".txt", ".text", ".tokens", ".md")

    document: Literal["blank-line", "line", "file", "heading"] = "blank-line"
    heading: Pattern = WIKITEXT_HEADING

    def __post_init__(self) -> None:
        try:
            re.compile(self.heading)
        except re.error as error:
            raise WorkbenchError(f"heading = {self.heading!r} is not a regular expression: {error}") from error

    @classmethod
    def detect(cls, source: Peek) -> Match | bool:
        """Matches any text weakly; a file that begins as JSON needs a text's suffix."""
        structured = source.text.lstrip().startswith(("{", "[")) and source.suffix not in cls.suffixes
        return Match.NO if source.is_folder or structured else Match.FALLBACK

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        for path in files(paths, self.suffixes):
            yield from self._documents(path)

    def sample(self, record: Record) -> Sample:
        name, number, raw = record.data
        source = record.where.rpartition(":")[0]
        text = "\n".join(parse_text(line, f"{source}:{number + i}") for i, line in enumerate(raw)).strip("\n")
        key = record_key(f"{name}-{number}")
        return {"key": key, "text": text, "meta": {"source": source, "line": number}}

    def records_from(self, place: RecordPlace) -> Iterator[Record]:
        return self._documents(place.path, place.offset, place.number)

    def _documents(self, path: Path, offset: int | None = None, number: int = 1) -> Iterator[Record]:
        """Gathers lines until `_begins` says that the next document starts.

        Args:
            offset: where a document begins, whose first line has this `number`; by default the whole file is read.
        """
        begin, start = number, offset
        gathered: list[bytes] = []
        pattern = re.compile(self.heading.encode())
        for count, line, at in placed_lines(path, offset, number):
            if self._begins(line, pattern) and gathered:
                yield from self._record(path, begin, gathered, start)
                gathered = []
            if not gathered:
                begin, start = count, at
            if gathered or line.strip():
                gathered.append(line)
        yield from self._record(path, begin, gathered, start)

    def _record(self, path: Path, begin: int, gathered: list[bytes], offset: int | None) -> Iterator[Record]:
        if any(line.strip() for line in gathered):
            place = None if offset is None else RecordPlace(path, offset, begin)
            yield Record((stem(path), begin, gathered), sum(map(len, gathered)), f"{path.name}:{begin}", place)

    def _begins(self, line: bytes, pattern: re.Pattern[bytes]) -> bool:
        if self.document == "heading":
            return pattern.fullmatch(line.strip(b"\r\n")) is not None
        return self.document == "line" or (self.document == "blank-line" and not line.strip())


def is_wikitext(source: Peek) -> bool:
    """Whether the first line with text is a heading as in the WikiText sets (` = Title = `)."""
    first = next((line for line in source.head if line.strip()), "")
    return not source.is_folder and re.fullmatch(WIKITEXT_HEADING, first) is not None
