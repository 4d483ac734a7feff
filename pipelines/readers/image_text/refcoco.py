"""Referring expressions: RefCOCO, RefCOCO+ (Yu et al., ECCV 2016), RefCOCOg (Mao et al., CVPR 2016), as JSON.

The published references `refs(unc).p` and the like are pickles; they are read as JSON, with `instances.json`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pipelines.readers.image_text.images import ImageReader, box_within
from pipelines.readers.json_rows import row_records
from pipelines.readers.reader import Malformed, MalformedError, Match, Peek, as_object, parse_row, peek, require
from pipelines.sources.files import files, stem
from pipelines.sources.json_files import read_json, rows_of
from workbench.core.errors import WorkbenchError

log = logging.getLogger(__name__)

REFERENCE = {"ref_id", "ann_id", "sentences"}
INSTANCES = "instances.json"
PICKLES = (".p", ".pkl", ".pickle")


class _Objects(NamedTuple):
    """By image its file name, width and height, and by object its box [x, y, width, height]."""

    images: dict[int, tuple[str, float, float]]
    boxes: dict[int, list[float]]


@dataclass(frozen=True)
class RefCoco(ImageReader):
    """Each expression is a caption of its image, and keeps the box of its object (`caption_boxes`).

    The split (train, val, testA, testB, test) goes to `meta.split`. If the objects of an image are in several splits
    (RefCOCOg by Google), the image is a record in each. `instances.json` is searched for next to the references unless
    it is an input. Both files are held in memory.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".json", *PICKLES)

    @classmethod
    def detect(cls, source: Peek) -> Match | bool:
        if source.suffix in PICKLES:
            return cls.likely(source, source.path.name.startswith("refs"))
        if source.has_key("images") and source.has_key("file_name"):  # COCO's instances, or other annotations of it
            alongside = [path for path in source.path.parent.glob("refs*") if path.is_file()]
            return any(_is_references(path) for path in {*source.inputs, *alongside} if path != source.path)
        return source.row.keys() >= REFERENCE

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        references, objects = self._sorted(paths)
        return list(dict.fromkeys([*references, objects, *super().inputs(references)]))

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        references, place = self._sorted(paths)
        objects = _objects(place, malformed)
        gathered: dict[tuple[int, str], tuple[dict[str, Any], str]] = {}
        for record in row_records(references):
            with malformed:
                row = parse_row(record.data[2], record.where)
                image, box = _referred(row, objects, place, record.where)
                split = str(row.get("split") or "")
                empty: dict[str, list[Any]] = {"captions": [], "caption_boxes": []}
                fields, _ = gathered.setdefault((image, split), (empty, record.where))
                said = _expressions(row, record.where)
                fields["captions"] += said
                fields["caption_boxes"] += [box] * len(said)
        splits: dict[int, int] = {}
        for image, _ in gathered:
            splits[image] = splits.get(image, 0) + 1
        for (image, split), (fields, where) in gathered.items():
            name = objects.images[image][0]
            key = stem(Path(name)) + (f"-{split}" if splits[image] > 1 else "")
            meta = {"id": image, **({"split": split} if split else {})}
            yield name, {**fields, "key": key, "meta": meta}, where

    def _sorted(self, paths: Sequence[Path]) -> tuple[list[Path], Path]:
        """The files of references, and that of the objects.

        Raises:
            WorkbenchError: one of the two is missing, or the references are a pickle.
        """
        given = files(paths, self.suffixes)
        pickles = [path for path in given if path.suffix in PICKLES]
        references = [path for path in given if _is_references(path)]
        if pickles and not references:
            raise WorkbenchError(
                f"{pickles[0]} is a pickle, and reading it may run any code, so it is not read. "
                "If you trust it, convert it to JSON once, and give that: python -c 'import json, pickle, sys; "
                f'json.dump(pickle.load(open(sys.argv[1], "rb")), open("refs.json", "w"))\' \'{pickles[0].name}\''
            )
        if pickles:
            log.warning("pickles are not read: %s", ", ".join(path.name for path in pickles))
        others = [path for path in given if path not in (*references, *pickles)]
        if not references:
            raise WorkbenchError(f"no references among {', '.join(p.name for p in given)}: a list of {{ref_id, ...}}")
        there = others or [path for path in (references[0].parent / INSTANCES,) if path.is_file()]
        if len(there) != 1:
            raise WorkbenchError(
                f"{references[0].name} names objects by number, and their boxes are in {INSTANCES}: give it with "
                f"the references; found {', '.join(p.name for p in there) or 'none'}"
            )
        return references, there[0]


def _is_references(path: Path) -> bool:
    return path.is_file() and path.suffix not in PICKLES and peek(path).row.keys() >= REFERENCE


def _objects(path: Path, malformed: Malformed) -> _Objects:
    found, tree = _Objects({}, {}), read_json(path)
    for number, row in enumerate(rows_of(tree, "images", path)):
        where = f"{path.name}:images[{number}]"
        with malformed:
            sides = [require(as_object(row, where), side, (int, float), where) for side in ("width", "height")]
            found.images[require(row, "id", int, where)] = (require(row, "file_name", str, where), *sides)
    for number, row in enumerate(rows_of(tree, "annotations", path)):
        where = f"{path.name}:annotations[{number}]"
        with malformed:
            box = require(as_object(row, where), "bbox", list, where)
            if len(box) != 4 or not all(isinstance(side, int | float) for side in box):
                raise MalformedError("bbox is not [x, y, width, height]", where, repr(box)[:60])
            found.boxes[require(row, "id", int, where)] = box
    return found


def _referred(row: dict[str, Any], objects: _Objects, place: Path, where: str) -> tuple[int, list[float]]:
    """The image, and the corners of the object in 0..1."""
    image, thing = require(row, "image_id", int, where), require(row, "ann_id", int, where)
    if image not in objects.images or thing not in objects.boxes:
        raise MalformedError(f"an object that {place.name} does not have", where, f"image {image}, object {thing}")
    _, width, height = objects.images[image]
    x, y, across, down = objects.boxes[thing]
    return image, box_within([x, y, x + across, y + down], width, height)


def _expressions(row: dict[str, Any], where: str) -> list[str]:
    """The expressions of an object, as the set normalises them."""
    listed = [as_object(sentence, where) for sentence in require(row, "sentences", list, where)]
    return [require(one, "sent" if "sent" in one else "raw", str, where).strip() for one in listed]
