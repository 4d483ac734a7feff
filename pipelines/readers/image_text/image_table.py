"""Images inside a table of Parquet or Arrow, with captions, questions or classes, as `datasets` has them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from pipelines.readers.image_text.captions_table import CAPTION
from pipelines.readers.image_text.images import ImageReader, described_image
from pipelines.readers.image_text.questions import question_of
from pipelines.readers.reader import Drop, MalformedError, Match, Peek, Record
from pipelines.readers.row_fields import Source, check_sources, columns_of, fill, with_own
from pipelines.sources.columnar import SUFFIXES, called, holds_bytes, rows
from pipelines.sources.files import files, record_key
from pipelines.sources.image_store import Absent, ImageRef, ImageStore, open_store
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Name
from workbench.sequences.sequence import Sample

log = logging.getLogger(__name__)
QUESTION = "question"
LABEL = ("label", "labels", "gold_label")
IDENTIFIERS = ("question_id", "questionId", "id")


@dataclass(frozen=True)
class ImageTable(ImageReader):
    """Each row is a record. Its image is a column of bytes, or of {bytes, path}; a path alone is searched for in
    --images.

    The columns are found by their usual names, or named by options: captions (a text, or a list), a question with its
    answers, a label (the class's name if the file has it). `fields` maps other columns to fields of a sample
    (docs/samples.md). The remaining columns go to `meta`. Questions on the same image in several rows stay separate
    records.
    """

    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    image_column: Name | None = None
    caption_column: Name | None = None
    fields: dict[Name, Source] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_sources(self.kind, self.fields)

    @classmethod
    def detect(cls, source: Peek) -> Match | bool:
        return source.suffix in cls.suffixes and not source.is_folder and any(map(_is_image, source.row.values()))

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        found = files(paths, self.suffixes)
        return [*found, *ImageStore(self.images).files] if self.images else found

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        store, warned = None, set[str]()
        for path in files(paths, self.suffixes):
            for number, row, size in rows(path):
                where = f"{path.name}:{number}"
                name = self._image_column(row)
                if name is None:
                    found = ", ".join(row)
                    error = MalformedError("no column has an image", where, f"columns: {found}; --option image_column")
                    yield Record(error, 0, where)
                    continue
                image = row.pop(name)
                other = {column for column, value in row.items() if holds_bytes(value)} - warned
                if other:
                    warned |= other
                    log.warning("%s: the columns %s hold bytes, too; they are ignored", path.name, ", ".join(other))
                data, place = (image, None) if isinstance(image, bytes) else (image.get("bytes"), image.get("path"))
                ref: ImageRef | Absent = Absent.MISSING
                if data is None and place:
                    store = store or open_store(path, self.images)
                    ref = store.look(place)
                listed = str(PurePosixPath(place).name) if place else f"{called(path)}-{number}"
                size += ref.size if ref else 1
                yield Record((called(path), number, row, data, ref, listed), size, where)
        if store is not None:
            store.log_found()

    def sample(self, record: Record) -> Sample | Drop:
        name, number, row, data, ref, listed = record.data
        data = ref.read() if data is None and ref else data
        if data is None:
            return Drop(ref.reason("image"))
        key, fields = f"{name}-{number}", dict[str, Any]()
        used = {"image"} if "image" in row else set()
        if isinstance(row.get(QUESTION), str):
            asked, own = _question(row, key, record.where)
            fields["questions"] = [asked]
            used |= own
        left = {column: value for column, value in row.items() if column not in used}
        sources = row_sources(left, self.kind, self.fields, self.caption_column)
        fields |= fill(row, sources, record.where)
        used |= columns_of(sources)
        meta = {column: v for column, v in row.items() if column not in used and not holds_bytes(v) and v is not None}
        return described_image(data, {**fields, "key": record_key(key), "meta": meta}, listed, record.where)

    def _image_column(self, row: Mapping[str, Any]) -> str | None:
        if self.image_column is not None:
            return self.image_column if _is_image(row.get(self.image_column)) else None
        return next((name for name, value in row.items() if _is_image(value)), None)


def row_sources(
    row: Mapping[str, Any], kind: str, chosen: Mapping[str, Source], caption: Name | None = None
) -> dict[str, Source]:
    """The columns of each field: as chosen by options, named like fields, or with usual names."""
    sources = with_own(row, kind, chosen)
    if caption is not None:
        sources["captions"] = caption
    said = next((name for name in CAPTION if isinstance(row.get(name), str | list)), None)
    if "captions" not in sources and said is not None:
        sources["captions"] = said
    named = next((name for name in LABEL if isinstance(row.get(name), str | int)), None)
    if "labels" not in chosen and named is not None:
        sources["labels"] = [named]
    return {name: source for name, source in sources.items() if name not in ("questions", "meta")}


def check_row(number: int, row: Mapping[str, Any]) -> None:
    """Check a record in memory, which no options describe (`pipelines.sources.records`).

    Raises:
        WorkbenchError: it has no image, or no field with a caption, a question or a label.
    """
    found = ", ".join(f"{name} ({type(value).__name__})" for name, value in row.items() if not _is_image(value))
    if not any(map(_is_image, row.values())):
        raise WorkbenchError(
            f"record {number} has no image, only {found or 'no field'}; allowed: an image of Pillow, an array of bytes "
            "[height, width, channels], the bytes of a file, or a Path. Of the name of a file make a Path, or give the "
            "folder of the images: images=FOLDER"
        )
    if not {*CAPTION, *LABEL, QUESTION} & row.keys() and not with_own(row, ImageTable.kind, {}):
        raise WorkbenchError(
            f"record {number} has an image and no text in a field of a known name, only {found or 'no other field'}; "
            f"allowed: {', '.join(CAPTION)} (a caption), {QUESTION}, {', '.join(LABEL)}. Rename the field, or name it: "
            "option={'caption_column': NAME}"
        )


def _is_image(value: Any) -> bool:
    """Whether a cell is an image: bytes, or the form of `datasets`."""
    return isinstance(value, bytes) or (isinstance(value, dict) and value.keys() == {"bytes", "path"})


def _question(row: Mapping[str, Any], key: str, where: str) -> tuple[dict[str, Any], set[str]]:
    """The question of a row, and the columns that it uses; without an id it has the record's key."""
    named = next((name for name in IDENTIFIERS if isinstance(row.get(name), str | int)), None)
    answers = row.get("answers", row.get("answer", []))
    fields = {**row, "question_id": key if named is None else row[named]}
    fields["answers"] = [answers] if isinstance(answers, str) else [] if answers is None else answers
    fields.pop("answer", None)
    used = {QUESTION, "answers", "answer", *([named] if named else [])}
    question = question_of({name: value for name, value in fields.items() if value is not None}, where)
    return question, used | question.keys()
