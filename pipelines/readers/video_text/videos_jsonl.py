"""Videos with captions or recognised speech as JSON lines: `{video, captions: [...], times: [[from, to], ...]}`.

Also `{video, caption, start, end}`, a line for each caption, and `{video, segments: [{start, end, text}, ...]}`, as
speech recognisers write it. `video` is a file, or a folder of frames.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pipelines.readers.json_rows import SUFFIXES
from pipelines.readers.reader import Drop, Peek, Record
from pipelines.readers.video_text.captioned import CaptionedVideos
from pipelines.sources.files import record_key
from pipelines.sources.image_store import Absent, ImageRef, ImageStore, leads_out
from workbench.core.errors import BadValueError
from workbench.core.options.bounds import Name, Positive
from workbench.sequences.sequence import Sample

_NUMBER = re.compile(r"(\d+)")
_FRAMES = (".jpg", ".jpeg", ".png")


@dataclass(frozen=True)
class VideosJsonl(CaptionedVideos):
    """Rows of one video are gathered. `frame_rate` is that of the frames in folders whose row does not state it.

    Encoded frames are put into a video unchanged, in the order of the numbers in their names. Other fields go to the
    sample's `meta`.
    """

    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    video_field: Name = "video"
    frame_rate: Positive = 25.0

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return "video" in source.row

    def names_it(self) -> str:
        return self.video_field

    def refs(self, store: ImageStore, name: str) -> list[ImageRef] | Absent:
        """A video's file, or the frames of its folder, in the order of the numbers in their names."""
        ref = store.look(name)
        if ref:
            return [ref]
        frames = () if leads_out(name) else store.inside(name)
        inside = [(place, found) for place, found in frames if names_frame(place)]
        return [found for _, found in sorted(inside, key=lambda pair: _natural(pair[0]))] or ref

    def sample(self, record: Record) -> Sample | Drop:
        name, fields, refs = record.data
        if not refs:
            return Drop((Absent.MISSING if refs == [] else refs).reason("video"))
        video = refs[0].read() if len(refs) == 1 and not names_frame(refs[0].path) else self._video(fields, refs)
        if isinstance(video, Drop):
            return video
        meta = {"source": record.where.rpartition(":")[0], "video": name, "sha256": hashlib.sha256(video).hexdigest()}
        taken = {key: value for key, value in fields.items() if key not in ("meta", "frame_rate")}
        key = record_key(name.rpartition(".")[0] or name)
        return {**taken, "key": key, "video": video, "meta": {**fields["meta"], **meta}}

    def _video(self, fields: Mapping[str, Any], refs: Sequence[ImageRef]) -> bytes | Drop:
        from vision.video.videos import open_video

        try:
            return open_video([ref.read() for ref in refs], fields.get("frame_rate", self.frame_rate), "its frames")
        except BadValueError as error:
            return Drop(error.reason)


def names_frame(path: str) -> bool:
    """Whether a file is one frame, by its name."""
    return path.lower().endswith(_FRAMES)


def _natural(name: str) -> list[Any]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in _NUMBER.split(name)]
