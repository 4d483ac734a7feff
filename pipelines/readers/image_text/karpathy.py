"""Karpathy's splits of COCO, Flickr30k and Flickr8k (`dataset_coco.json`): images with sentences and a split each.

Karpathy and Fei-Fei, Deep Visual-Semantic Alignments for Generating Image Descriptions, 2015.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.reader import Malformed, MalformedError, Peek, as_object, require
from pipelines.sources.files import files, stem
from pipelines.sources.json_files import read_json, rows_of
from workbench.core.errors import unknown
from workbench.core.options.bounds import Name


@dataclass(frozen=True)
class Karpathy(ImageReader):
    """The split of an image goes to `meta.split`: `--own-split val --own-split test` makes a corpus of each of the two,
    and `restval`, which the published results train on, stays with `train`.

    `splits` names the splits to read (default: all). The annotations are held in memory.
    """

    apart: ClassVar[bool] = True
    suffixes: ClassVar[tuple[str, ...]] = (".json",)

    splits: list[Name] = field(default_factory=list)

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return source.has_key("images") and source.has_key("sentences") and source.has_key("filename")

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        for path in files(paths, self.suffixes):
            rows = rows_of(read_json(path), "images", path)
            there = {str(row.get("split")) for row in rows if isinstance(row, dict)}
            for name in self.splits:
                if name not in there:
                    raise unknown("split", name, sorted(there), f"{path}, --option splits")
            for number, row in enumerate(rows):
                where = f"{path.name}:images[{number}]"
                with malformed:
                    split = require(as_object(row, where), "split", str, where)
                    if not self.splits or split in self.splits:
                        yield *_image(row, split, where), where


def _image(row: dict[str, Any], split: str, where: str) -> tuple[str, dict[str, Any]]:
    """The image's name, and its sentences unchanged."""
    file = require(row, "filename", str, where)
    folder = row.get("filepath")
    sentences = require(row, "sentences", list, where)
    if not all(isinstance(sentence, dict) for sentence in sentences):
        raise MalformedError("sentences must be objects with the string 'raw'", where)
    captions = [require(sentence, "raw", str, where).strip() for sentence in sentences]
    meta = {"split": split, "id": row.get("cocoid", row.get("imgid"))}
    known = {name: value for name, value in meta.items() if value is not None}
    return f"{folder}/{file}" if folder else file, {"key": stem(Path(file)), "captions": captions, "meta": known}
