"""Videos with captions or recognised speech as JSON lines: `{video, captions: [...], times: [[from, to], ...]}`.

Also `{video, caption, start, end}`, a line for each caption, and `{video, segments: [{start, end, text}, ...]}`, as
speech recognisers write it. `video` is a file, or a folder of frames.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.json_rows import SUFFIXES, row_records
from pipelines.readers.reader import Drop, Malformed, MalformedError, Peek, RawReader, Record, parse_row, require
from pipelines.readers.seconds import stretch
from pipelines.sources.files import files, record_key
from pipelines.sources.image_store import ImageRef, ImageStore, open_store
from workbench.errors import BadValueError
from workbench.options.bounds import Location, Name, Positive
from workbench.sequences.sequence import Sample

_NUMBER = re.compile(r"(\d+)")
_PICTURES = (".jpg", ".jpeg", ".png")
_OWN = frozenset({"captions", "caption", "times", "start", "end", "segments", "frame_rate", "meta"})


@dataclass(frozen=True)
class VideosJsonl(RawReader):
    """Rows of one video are gathered. `frame_rate` is that of the frames in folders, where a row doesn't say it.

    Frames are put into a film as they are encoded, in the order of the numbers in their names. Other fields go to the
    sample's `meta`.
    """

    kind: ClassVar[str] = "video-text"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    videos: list[Location] = field(default_factory=list)
    video_field: Name = "video"
    frame_rate: Positive = 25.0

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return "video" in source.row

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        described = files(paths, self.suffixes)
        return [*described, *self._store(described[0]).files]

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        """Raises WorkbenchError where not one of the videos is found."""
        store, found, missing = self._store(files(paths, self.suffixes)[0]), 0, 0
        malformed = Malformed()
        videos = self._gathered(paths, malformed)
        yield from malformed.records()
        for name, (fields, where) in videos.items():
            refs = _refs(store, name)
            found, missing = found + bool(refs), missing + (not refs)
            yield Record((name, fields, refs), max(1, sum(ref.size for ref in refs)), where)
        if missing and not found:
            raise store.lacking(f"{missing} videos", name, "videos")

    def sample(self, record: Record) -> Sample | Drop:
        name, fields, refs = record.data
        if not refs:
            return Drop("video not found")
        film = refs[0].read() if len(refs) == 1 and not name_is_picture(refs[0].path) else self._film(fields, refs)
        if isinstance(film, Drop):
            return film
        meta = {"source": record.where.rpartition(":")[0], "video": name, "sha256": hashlib.sha256(film).hexdigest()}
        taken = {key: value for key, value in fields.items() if key not in ("meta", "frame_rate")}
        key = record_key(name.rpartition(".")[0] or name)
        return {**taken, "key": key, "video": film, "meta": {**fields["meta"], **meta}}

    def _film(self, fields: Mapping[str, Any], refs: Sequence[ImageRef]) -> bytes | Drop:
        from vision.video.films import film_of

        try:
            return film_of([ref.read() for ref in refs], fields.get("frame_rate", self.frame_rate), "its frames")
        except BadValueError as error:
            return Drop(error.reason)

    def _store(self, described: Path) -> ImageStore:
        return open_store(described, self.videos, "videos")

    def _gathered(self, paths: Sequence[Path], malformed: Malformed) -> dict[str, tuple[dict[str, Any], str]]:
        """The fields of every video, and where its first row stands."""
        gathered: dict[str, tuple[dict[str, Any], str]] = {}
        for record in row_records(paths):
            with malformed:
                row, where = parse_row(record.data[2], record.where), record.where
                name = require(row, self.video_field, str, where)
                captions, times = spoken(row, where)
                rate = {"frame_rate": _rate(row, where)} if "frame_rate" in row else {}
                fields, _ = gathered.get(name, ({"meta": {}}, where))
                if fields.get("captions") and bool(times) != ("caption_times" in fields) and captions:
                    raise MalformedError("some captions of a video have times, and others none", where, name)
                gathered.setdefault(name, (fields, where))
                if captions:
                    fields.setdefault("captions", []).extend(captions)
                if times:
                    fields.setdefault("caption_times", []).extend(times)
                fields |= rate
                fields["meta"] |= {key: value for key, value in row.items() if key not in {*_OWN, self.video_field}}
        for fields, _ in gathered.values():
            _sort(fields)
        return gathered


def spoken(row: Mapping[str, Any], where: str) -> tuple[list[str], list[list[float]]]:
    """The captions of a row that are not empty, and their times, or none.

    Raises:
        MalformedError: of another form.
    """
    if "segments" in row:
        rows = require(dict(row), "segments", list, where)
        if not all(isinstance(segment, dict) for segment in rows):
            raise MalformedError("field 'segments' must be a list of objects", where, "{start, end, text}")
        captions = [require(segment, "text", str, where) for segment in rows]
        times: Any = [[segment.get("start"), segment.get("end")] for segment in rows]
    elif "caption" in row:
        captions = [require(dict(row), "caption", str, where)]
        times = [[row["start"], row.get("end")]] if "start" in row else []
    else:
        captions = require(dict(row), "captions", list, where) if "captions" in row else []
        times = row.get("times", [])
    if not all(isinstance(caption, str) for caption in captions):
        raise MalformedError("field 'captions' must be a list of strings", where)
    if times and (not isinstance(times, list) or len(times) != len(captions)):
        found = f"{len(captions)} captions, times: {str(times)[:60]}"
        raise MalformedError("every caption needs a time of its own", where, found)
    kept = [i for i, caption in enumerate(captions) if caption.strip()]
    return [captions[i].strip() for i in kept], [stretch(times[i], where) for i in kept if times]


def name_is_picture(path: str) -> bool:
    """Whether a file is one frame, by its name."""
    return path.lower().endswith(_PICTURES)


def _rate(row: dict[str, Any], where: str) -> float:
    rate = require(row, "frame_rate", (int, float), where)
    if not 0 < rate <= 1000:
        raise MalformedError("frame_rate must be frames a second, above 0", where, str(rate))
    return float(rate)


def _refs(store: ImageStore, name: str) -> list[ImageRef]:
    """A video's file, or the frames of its folder, in the order of the numbers in their names."""
    ref = store.find(name)
    if ref is not None:
        return [ref]
    inside = [(place, found) for place, found in store.inside(name) if name_is_picture(place)]
    return [found for _, found in sorted(inside, key=lambda pair: _natural(pair[0]))]


def _natural(name: str) -> list[Any]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in _NUMBER.split(name)]


def _sort(fields: dict[str, Any]) -> None:
    """Captions in the order of their times."""
    if "caption_times" in fields:
        order = sorted(range(len(fields["captions"])), key=lambda i: fields["caption_times"][i])
        for name in ("captions", "caption_times"):
            fields[name] = [fields[name][i] for i in order]
