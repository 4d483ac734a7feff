"""Base class of the video formats: rows with captions or recognised speech, gathered by their video."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.json_rows import row_records
from pipelines.readers.reader import Malformed, MalformedError, RawReader, Record, parse_row, require
from pipelines.readers.seconds import stretch
from pipelines.sources.files import files, is_media
from pipelines.sources.image_store import Absent, ImageRef, ImageStore, open_store
from workbench.core.options.bounds import Location

_OWN = frozenset({"captions", "caption", "times", "start", "end", "segments", "frame_rate", "meta"})


@dataclass(frozen=True)
class CaptionedVideos(RawReader):
    """A record for each video, which a field of each row names. `videos` are the folders or tar files that hold them.

    Other fields go to the sample's `meta`.
    """

    kind: ClassVar[str] = "video-text"

    videos: list[Location] = field(default_factory=list)

    def may_name(self, path: Path) -> bool:
        return is_media(path) or path.suffix in (".npy", ".tar")

    def names_it(self) -> str:
        """The field of a row that names its video."""
        raise NotImplementedError(f"{type(self).__name__} must define names_it")

    def refs(self, store: ImageStore, name: str) -> list[ImageRef] | Absent:
        """The files of a video, or why there are none."""
        raise NotImplementedError(f"{type(self).__name__} must define refs")

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        described = files(paths, self.suffixes)
        return [*described, *self._store(described[0]).files]

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        """(name of the video, the sample's fields, its files). Raises WorkbenchError if none of them is found."""
        store, found, missing = self._store(files(paths, self.suffixes)[0]), 0, 0
        malformed = Malformed()
        videos = self._gathered(paths, malformed)
        yield from malformed.records()
        for name, (fields, where) in videos.items():
            refs = self.refs(store, name)
            found, missing = found + bool(refs), missing + (not refs)
            yield Record((name, fields, refs), max(1, sum(ref.size for ref in refs or ())), where)
        store.log_found("videos")
        if missing and not found:
            raise store.lacking(f"{missing} videos", name, "videos")

    def _store(self, described: Path) -> ImageStore:
        return open_store(described, self.videos, "videos")

    def _gathered(self, paths: Sequence[Path], malformed: Malformed) -> dict[str, tuple[dict[str, Any], str]]:
        """The fields of every video, and the place of its first row."""
        gathered: dict[str, tuple[dict[str, Any], str]] = {}
        for record in row_records(paths):
            with malformed:
                row, where = parse_row(record.data[2], record.where), record.where
                name = require(row, self.names_it(), str, where)
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
                fields["meta"] |= {key: value for key, value in row.items() if key not in {*_OWN, self.names_it()}}
        for fields, _ in gathered.values():
            _sort(fields)
        return gathered


def spoken(row: Mapping[str, Any], where: str) -> tuple[list[str], list[list[float]]]:
    """The captions of a row that are not empty, and their times, if any.

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


def _rate(row: dict[str, Any], where: str) -> float:
    rate = require(row, "frame_rate", (int, float), where)
    if not 0 < rate <= 1000:
        raise MalformedError("frame_rate must be frames a second, above 0", where, str(rate))
    return float(rate)


def _sort(fields: dict[str, Any]) -> None:
    """Captions in the order of their times."""
    if "caption_times" in fields:
        order = sorted(range(len(fields["captions"])), key=lambda i: fields["caption_times"][i])
        for name in ("captions", "caption_times"):
            fields[name] = [fields[name][i] for i in order]
