"""Several media a record as JSON lines: `{media: {left: a.jpg, right: b.jpg}, captions: [...], ...}` (NLVR2's form)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.json_rows import SUFFIXES, row_records
from pipelines.readers.reader import Drop, MalformedError, Peek, Record, parse_row, require
from pipelines.readers.row_fields import Source, check_sources, columns_of, fill, with_own
from pipelines.sources.files import files, record_key
from pipelines.sources.image_store import open_store
from workbench.errors import WorkbenchError
from workbench.options.bounds import Name
from workbench.sequences.sequence import Sample


@dataclass(frozen=True)
class MediaJsonl(ImageReader):
    """`media_field` holds the files by name, or a list of files, which are then called medium0, medium1, ...

    The other fields of image-text samples (docs/samples.md: `captions`, `questions`, `labels`, ...) are taken over;
    `fields` says which come from fields of other names: `fields={captions: sentence, labels: [label]}`. What is left
    goes to the sample's `meta`. Images, sounds (wav, flac, mp3, ogg) and films (mp4, webm, avi) are stored as they are.
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

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        """Raises WorkbenchError where not one of the files is found."""
        store = open_store(files(paths, self.suffixes)[0], self.images)
        found, lost = 0, ""
        for record in row_records(paths):
            row = parse_row(record.data[2], record.where)
            refs = {name: store.find(place) for name, place in self._places(row, record.where).items()}
            lacking = [str(name) for name, ref in refs.items() if ref is None]
            found, lost = found + (not lacking), lost or record.where * bool(lacking)
            size = record.size + sum(ref.size for ref in refs.values() if ref is not None)
            yield Record((*record.data[:2], row, refs), size, record.where)
        if lost and not found:
            raise WorkbenchError(
                f"no record has all its media in {store.describe()} (the first without is {lost}). Name the folder or "
                "tar file of the media with --images"
            )

    def sample(self, record: Record) -> Sample | Drop:
        name, number, row, refs = record.data
        if any(ref is None for ref in refs.values()):
            return Drop("medium not found")
        sources = dict(self.fields)
        taken = fill(row, with_own(row, self.kind, sources), record.where)
        used = taken.keys() | columns_of(sources) | {self.media_field, self.id_field, "meta"}
        key = record_key(str(row[self.id_field]) if self.id_field in row else f"{name}-{number}")
        media = {medium: ref.read() for medium, ref in refs.items()}
        return {**taken, "key": key, "media": media, "meta": _meta(row, used, media, record.where)}

    def _places(self, row: Mapping[str, Any], where: str) -> dict[str, str]:
        listed = require(dict(row), self.media_field, (dict, list), where)
        places = listed if isinstance(listed, dict) else {f"medium{i}": place for i, place in enumerate(listed)}
        if not places or not all(isinstance(place, str) for place in places.values()):
            raise MalformedError(f"field {self.media_field!r} names no files", where, "a file's name for each medium")
        return places


def _meta(row: Mapping[str, Any], used: set[str], media: Mapping[str, bytes], where: str) -> dict[str, Any]:
    """`sha256` is over all media, so that copies of a record never end up on both sides of a split."""
    nested = row["meta"] if isinstance(row.get("meta"), dict) else {}
    digest = hashlib.sha256(b"".join(hashlib.sha256(data).digest() for data in media.values())).hexdigest()
    rest = {name: value for name, value in row.items() if name not in used}
    return {"source": where.rpartition(":")[0], "sha256": digest, **nested, **rest}
