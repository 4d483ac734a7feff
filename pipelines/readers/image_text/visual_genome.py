"""Visual Genome (Krishna et al. 2016): `region_descriptions.json` as captions, `question_answers.json` as questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.image_text.vqa_jsonl import question_of
from pipelines.readers.json_rows import row_records
from pipelines.readers.reader import Malformed, MalformedError, Peek, parse_row, require
from workbench.options.bounds import FileTemplate


@dataclass(frozen=True)
class VisualGenome(ImageReader):
    """One file or both: what both say of an image is one record. `VG_100K` and `VG_100K_2` may lie in one folder.

    Each phrase is a caption, as UNITER and LXMERT read them; `image_name` makes the file name of an image from its id,
    which is called `id` in some versions of the set and `image_id` in others.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".json",)

    image_name: FileTemplate = "{id}.jpg"

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return not {"id", "image_id"}.isdisjoint(source.row) and not {"regions", "qas"}.isdisjoint(source.row)

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        gathered: dict[int, tuple[dict[str, Any], str]] = {}
        for record in row_records(paths):
            with malformed:
                row = parse_row(record.data[2], record.where)
                image = require(row, "image_id" if "image_id" in row else "id", int, record.where)
                if "regions" not in row and "qas" not in row:
                    raise MalformedError("neither regions nor qas", record.where, f"fields: {', '.join(row)}")
                said = {"captions": _phrases(row, record.where)} if "regions" in row else {}
                asked = {"questions": _questions(row, record.where)} if "qas" in row else {}
                fields, _ = gathered.setdefault(image, ({"key": str(image), "meta": {"id": image}}, record.where))
                for name, listed in (said | asked).items():
                    fields.setdefault(name, []).extend(listed)
        for image, (fields, where) in gathered.items():
            yield self.named(self.image_name, where, id=image, subset=""), fields, where


def _phrases(row: dict[str, Any], where: str) -> list[str]:
    """The phrases of an image's regions, each once."""
    regions = _objects(row, "regions", where)
    return list(dict.fromkeys(require(region, "phrase", str, where).strip() for region in regions))


def _questions(row: dict[str, Any], where: str) -> list[dict[str, Any]]:
    asked = _objects(row, "qas", where)
    return [question_of({**one, "question_id": one.get("qa_id")}, where) for one in asked]


def _objects(row: dict[str, Any], name: str, where: str) -> list[dict[str, Any]]:
    found = require(row, name, list, where)
    if not all(isinstance(one, dict) for one in found):
        raise MalformedError(f"field {name!r} must be a list of objects", where)
    return found
