"""Base class of the formats with several media in a record: files found by name; the worker loads their bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.reader import Drop, Malformed, Record
from pipelines.sources.files import files
from pipelines.sources.image_store import Absent, open_store
from workbench.core.errors import WorkbenchError
from workbench.sequences.sequence import Sample

IMAGE = "image"
"""A medium of this name that is alone is the sample's own image."""


class MediaRecord(NamedTuple):
    """A record of the file: `places` are the files by the media's names, `row` has the other fields."""

    key: str
    places: Mapping[str, str]
    row: dict[str, Any]
    size: int
    where: str


@dataclass(frozen=True)
class MediaReader(ImageReader):
    """A format whose records have `media`, or one image; a subclass defines `described` and `content`."""

    def described(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[MediaRecord]:
        """The records, in the parent process; rows that do not fit the format are read within `malformed`."""
        raise NotImplementedError(f"{type(self).__name__} must define described")

    def content(self, row: dict[str, Any], where: str) -> Sample:
        """The sample's fields without key and media, in the worker.

        Raises:
            MalformedError: the row does not fit the format.
        """
        raise NotImplementedError(f"{type(self).__name__} must define content")

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        """Raises WorkbenchError if none of the files is found."""
        store = open_store(files(paths, self.suffixes)[0], self.images)
        found, lost, malformed = 0, "", Malformed()
        for one in self.described(paths, malformed):
            yield from malformed.records()
            refs = {name: self.looked_up(store, place) for name, place in one.places.items()}
            lacking = not all(refs.values())
            found, lost = found + (not lacking), lost or one.where * lacking
            size = one.size + sum(ref.size for ref in refs.values() if ref)
            yield Record((one.key, one.row, refs, dict(one.places)), size, one.where)
        yield from malformed.records()
        store.log_found("media")
        if lost and not found:
            raise WorkbenchError(
                f"no record has all its media in {store.describe()} (the first without is {lost}). Name the folder or "
                "tar file of the media with --images"
            )

    def sample(self, record: Record) -> Sample | Drop:
        key, row, refs, places = record.data
        absent = next((ref for ref in refs.values() if isinstance(ref, Absent)), None)
        if absent is not None:
            return Drop("several media have this name" if absent is Absent.SEVERAL else absent.reason("medium"))
        fields = self.content(row, record.where)
        media = {medium: ref.read() for medium, ref in refs.items()}
        alone = media.keys() == {IMAGE}
        named = {"image": places[IMAGE]} if alone else {"files": places}
        meta = {"source": record.where.rpartition(":")[0], "sha256": _hash(media), **named, **fields.get("meta", {})}
        seen = media if alone else {"media": media}
        return {**fields, **seen, "key": key, "meta": meta}


def _hash(media: Mapping[str, bytes]) -> str:
    """A hash over all media, so that copies of a record never end up in different splits; of a single image its own."""
    if media.keys() == {IMAGE}:
        return hashlib.sha256(media[IMAGE]).hexdigest()
    return hashlib.sha256(b"".join(hashlib.sha256(data).digest() for data in media.values())).hexdigest()
