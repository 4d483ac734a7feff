"""Precomputed features of videos, and captions, as JSON lines: `{clips: "a.npy", captions: [...], times: ...}`.

The captions are those of the format `videos-jsonl`. A video's features are an array [clips, numbers] in a .npy file, as
the extractors of HowTo100M write them (S3D, a row a second). To extract features from videos use `prepare clips`.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pipelines.readers.json_rows import SUFFIXES
from pipelines.readers.reader import Drop, MalformedError, Peek, Record
from pipelines.readers.video_text.captioned import CaptionedVideos
from pipelines.sources.files import record_key
from pipelines.sources.image_store import Absent, ImageRef, ImageStore
from workbench.core.options.bounds import Name, Positive
from workbench.sequences.sequence import Sample

SUFFIX = ".npy"


@dataclass(frozen=True)
class ClipsJsonl(CaptionedVideos):
    """A clip is a row of the array, `seconds` long. `backbone` names the extractor; recipes and runs check that name.

    The field `clips_field` names the file, with or without its suffix. The clips of all videos have the same feature
    size as those of the first one.
    """

    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    clips_field: Name = "clips"
    backbone: Name = "s3d"
    seconds: Positive = 1.0

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return "clips" in source.row

    def about(self) -> Mapping[str, Any]:
        return {"backbone": self.backbone}

    def names_it(self) -> str:
        return self.clips_field

    def refs(self, store: ImageStore, name: str) -> list[ImageRef] | Absent:
        ref = store.look(name) or store.look(f"{name}{SUFFIX}")
        return [ref] if isinstance(ref, ImageRef) else ref

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        size: int | None = None
        for record in super().records(paths):
            if isinstance(record.data, MalformedError) or not record.data[2]:
                yield record
                continue
            name, _, [ref] = record.data
            width = _width(ref)
            size = size or width
            if width is not None and width != size:
                found = f"{name}: {width}, those before: {size}"
                yield Record(MalformedError("clips of another feature size", record.where, found), 0, record.where)
            else:
                yield record

    def sample(self, record: Record) -> Sample | Drop:
        name, fields, refs = record.data
        if not refs:
            several = refs is Absent.SEVERAL
            return Drop("several files have this name" if several else "clips not found")
        data = refs[0].read()
        features = _features(data)
        if features is None:
            return Drop("damaged clips")
        ends = np.arange(1, len(features) + 1, dtype=np.float32) * np.float32(self.seconds)
        clips = {"features": features, "times": np.stack([ends - np.float32(self.seconds), ends], axis=1)}
        clip = {
            "source": record.where.rpartition(":")[0],
            "video": name,
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        taken = {key: value for key, value in fields.items() if key not in ("meta", "frame_rate")}
        meta = {**fields["meta"], **clip, "backbone": self.backbone}
        return {**taken, "key": record_key(name.removesuffix(SUFFIX)), "clips": clips, "meta": meta}


def _width(ref: ImageRef) -> int | None:
    """The feature size of a clip, from the file's header; None if it is not an array of clips."""
    with open(ref.path, "rb") as file:
        file.seek(ref.offset)
        try:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, _ = read(file)
        except (ValueError, OSError):
            return None
    return int(shape[1]) if len(shape) == 2 else None


def _features(data: bytes) -> np.ndarray | None:
    """float16 [clips, numbers]; None if the file is damaged, is another array, or exceeds float16."""
    try:
        found = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, OSError, EOFError):
        return None
    if found.ndim != 2 or not found.size or found.dtype.kind != "f":
        return None
    if not np.abs(found).max() <= np.finfo(np.float16).max:  # false for NaN, too
        return None
    half: np.ndarray = found.astype(np.float16)
    return half
