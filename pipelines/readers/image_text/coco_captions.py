"""COCO captions (Chen et al. 2015): one JSON file with `images`, `annotations` and `licenses`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.reader import Malformed, MalformedError, Match, Peek, as_object, require
from pipelines.sources.files import files
from pipelines.sources.json_files import read_json, rows_of


@dataclass(frozen=True)
class CocoCaptions(ImageReader):
    """The annotations are held in memory (COCO's are 100 MB); the images are not."""

    suffixes: ClassVar[tuple[str, ...]] = (".json",)

    @classmethod
    def detect(cls, source: Peek) -> Match:
        return cls.likely(source, source.has_key("images") and source.has_key("file_name"))

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        for path in files(paths, self.suffixes):
            tree = read_json(path)
            captions = _captions(tree, path, malformed)
            licences = {row.get("id"): row.get("url") or row.get("name") for row in tree.get("licenses", [])}
            for number, row in enumerate(rows_of(tree, "images", path)):
                where = f"{path.name}:images[{number}]"
                with malformed:
                    identifier = require(as_object(row, where), "id", (int, str), where)
                    own = [caption for caption, _ in captions.pop(identifier, [])]
                    name = require(row, "file_name", str, where)
                    yield name, {"captions": own, "meta": _meta(row, licences)}, where
            for identifier, left in captions.items():
                for _, where in left:
                    with malformed:
                        raise MalformedError("the caption's image has no entry in images", where, str(identifier))


def _captions(tree: dict[str, Any], path: Path, malformed: Malformed) -> dict[Any, list[tuple[str, str]]]:
    """The captions of each image, and their places."""
    captions: dict[Any, list[tuple[str, str]]] = {}
    for number, row in enumerate(rows_of(tree, "annotations", path)):
        where = f"{path.name}:annotations[{number}]"
        with malformed:
            identifier = require(as_object(row, where), "image_id", (int, str), where)
            captions.setdefault(identifier, []).append((require(row, "caption", str, where).strip(), where))
    return captions


def _meta(row: dict[str, Any], licences: dict[Any, str]) -> dict[str, Any]:
    url = row.get("coco_url") or row.get("flickr_url")
    meta = {"id": row["id"], "url": url, "licence": licences.get(row.get("license"))}
    return {name: value for name, value in meta.items() if value is not None}
