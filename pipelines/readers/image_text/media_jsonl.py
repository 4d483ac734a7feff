"""Several media a record as JSON lines: `{media: {left: a.jpg, right: b.jpg}, captions: [...], ...}`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.media import IMAGE, MediaReader, MediaRecord
from pipelines.readers.image_text.questions import with_blanks
from pipelines.readers.json_rows import SUFFIXES, row_records
from pipelines.readers.reader import Malformed, MalformedError, Peek, parse_row, require
from pipelines.readers.row_fields import Source, check_sources, columns_of, fill, with_own
from pipelines.sources.files import record_key
from workbench.core.options.bounds import Name
from workbench.sequences.sequence import Sample


@dataclass(frozen=True)
class MediaJsonl(MediaReader):
    """`media_field` holds the files by name, or a list of files, which are then named medium0, medium1, ...

    A record with one image names only this, or has a list of one: it becomes the sample's `image` (SNLI-VE: a photo, a
    sentence, a label). Each row is a record; captions of one image are not gathered, unlike in `captions-jsonl`.

    The other fields of image-text samples (docs/samples.md: `captions`, `questions`, `labels`, ...) are copied.
    `fields` maps fields of other names: `fields={captions: sentence, labels: [label]}`. The remaining fields go to the
    sample's `meta`. Images, sounds (wav, flac, mp3, ogg) and videos (mp4, webm, avi) are stored unchanged.
    """

    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    media_field: Name = "media"
    id_field: Name = "id"
    fields: dict[Name, Source] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_sources(self.kind, self.fields)

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return "media" in source.row

    def described(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[MediaRecord]:
        for record in row_records(paths):
            name, number, raw = record.data
            with malformed:
                row = parse_row(raw, record.where)
                key = record_key(str(row[self.id_field]) if self.id_field in row else f"{name}-{number}")
                yield MediaRecord(key, self._places(row, record.where), row, record.size, record.where)

    def content(self, row: dict[str, Any], where: str) -> Sample:
        sources = dict(self.fields)
        taken = fill(row, with_own(row, self.kind, sources), where)
        if "questions" in taken:
            taken["questions"] = [with_blanks(question, where) for question in taken["questions"]]
        used = taken.keys() | columns_of(sources) | {self.media_field, self.id_field, "meta"}
        nested = row["meta"] if isinstance(row.get("meta"), dict) else {}
        return {**taken, "meta": {**nested, **{name: value for name, value in row.items() if name not in used}}}

    def _places(self, row: Mapping[str, Any], where: str) -> dict[str, str]:
        listed = require(dict(row), self.media_field, (dict, list, str), where)
        files = [listed] if isinstance(listed, str) else listed
        if isinstance(files, dict):
            places = files
        elif len(files) == 1:
            places = {IMAGE: files[0]}
        else:
            places = {f"medium{i}": place for i, place in enumerate(files)}
        if not places or not all(isinstance(place, str) for place in places.values()):
            raise MalformedError(f"field {self.media_field!r} names no files", where, "a file's name for each medium")
        return places
