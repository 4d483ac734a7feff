"""Visual Genome (Krishna et al. 2016): `region_descriptions.json` as captions, `question_answers.json` as questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.images import ImageReader, box_within
from pipelines.readers.image_text.questions import Identifiers, question_of
from pipelines.readers.json_rows import row_records
from pipelines.readers.reader import Drop, Malformed, MalformedError, Peek, Record, parse_row, require
from workbench.core.errors import BadValueError
from workbench.core.options.bounds import FileTemplate
from workbench.sequences.sequence import Sample

SIDES = frozenset({"x", "y", "width", "height"})


@dataclass(frozen=True)
class VisualGenome(ImageReader):
    """Reads one file or both: the contents of both for an image are one record. `VG_100K` and `VG_100K_2` may be one
    folder.

    Each phrase is a caption, as UNITER and LXMERT read them, and keeps the part of its box that is within the image
    (`caption_boxes`; a phrase of several regions has the first one's). `image_name` makes the file name of an image
    from its id, which is named `id` in some versions of the set and `image_id` in others.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".json",)

    image_name: FileTemplate = "{id}.jpg"

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return not {"id", "image_id"}.isdisjoint(source.row) and not {"regions", "qas"}.isdisjoint(source.row)

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        gathered: dict[int, tuple[dict[str, Any], str]] = {}
        identifiers = Identifiers()
        for record in row_records(paths):
            with malformed:
                row = parse_row(record.data[2], record.where)
                image = require(row, "image_id" if "image_id" in row else "id", int, record.where)
                if "regions" not in row and "qas" not in row:
                    raise MalformedError("neither regions nor qas", record.where, f"fields: {', '.join(row)}")
                said = _phrases(row, record.where) if "regions" in row else {}
                asked = {"questions": _questions(row, record.where, identifiers, malformed)} if "qas" in row else {}
                fields, _ = gathered.setdefault(image, ({"key": str(image), "meta": {"id": image}}, record.where))
                for name, listed in (said | asked).items():
                    fields.setdefault(name, []).extend(listed)
        for image, (fields, where) in gathered.items():
            yield self.named(self.image_name, where, id=image, subset=""), fields, where

    def sample(self, record: Record) -> Sample | Drop:
        """Boxes are in pixels; the size comes from the image."""
        from vision.images.decoding import EncodedImage

        sample = super().sample(record)
        if not isinstance(sample, Drop) and "caption_boxes" in sample:
            try:
                width, height = EncodedImage(sample["image"], record.where).size
            except BadValueError as error:
                return Drop(error.reason)
            sample["caption_boxes"] = [box_within(box, width, height) for box in sample["caption_boxes"]]
        return sample


def _phrases(row: dict[str, Any], where: str) -> dict[str, list[Any]]:
    """The phrases of an image's regions, each once, and their boxes in pixels."""
    found: dict[str, list[float]] = {}
    for region in _objects(row, "regions", where):
        found.setdefault(require(region, "phrase", str, where).strip(), _box(region, where))
    return {"captions": [*found], "caption_boxes": [*found.values()]}


def _box(region: dict[str, Any], where: str) -> list[float]:
    """Corners in pixels; none if a region has no place."""
    if SIDES.isdisjoint(region):
        return []
    x, y, width, height = (require(region, name, (int, float), where) for name in ("x", "y", "width", "height"))
    return [x, y, x + width, y + height]


def _questions(row: dict[str, Any], where: str, identifiers: Identifiers, malformed: Malformed) -> list[dict[str, Any]]:
    """The well-formed rows of an image; a malformed one does not affect the others."""
    questions = []
    for one in _objects(row, "qas", where):
        with malformed:
            question = question_of({**one, "question_id": one.get("qa_id")}, where)
            identifiers.take(question, where)
            questions.append(question)
    return questions


def _objects(row: dict[str, Any], name: str, where: str) -> list[dict[str, Any]]:
    found = require(row, name, list, where)
    if not all(isinstance(one, dict) for one in found):
        raise MalformedError(f"field {name!r} must be a list of objects", where)
    return found
