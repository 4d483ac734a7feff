"""Folders of images: `datasets`' imagefolder (`metadata.jsonl|csv|parquet` next to the images), or a folder a class."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pipelines.readers.image_text.image_table import row_sources
from pipelines.readers.image_text.images import ImageReader, image_sample
from pipelines.readers.json_rows import row_records
from pipelines.readers.reader import Drop, Malformed, Match, Peek, Record, parse_row, require
from pipelines.readers.row_fields import Source, check_sources, columns_of, fill
from pipelines.readers.table_rows import header_of, rows_of_table
from pipelines.sources.columnar import SPLITS
from pipelines.sources.files import IMAGES, everything, is_about, plain_suffix, record_key
from pipelines.sources.image_store import Absent, ImageRef, ImageStore
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import real_path
from workbench.core.options.bounds import Name
from workbench.sequences.sequence import Sample

FILE_NAME = "file_name"
METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")


class Classed(NamedTuple):
    """An image by its folders: its class, and its split if the folder above has the name of one."""

    path: Path
    name: str
    label: str
    split: str | None


@dataclass(frozen=True)
class ImageFolder(ImageReader):
    """With `metadata.*` each row names its image (`file_name`); captions and labels are found by their usual names.

    `fields` maps other columns to fields of a sample (docs/samples.md); the remaining columns go to `meta`. Without
    metadata the image's folder is its class (`labels.label`), as `evaluate zero-shot` reads it. Folders above with
    names such as train or test are splits (`meta.split`, for --own-split).
    """

    suffixes: ClassVar[tuple[str, ...]] = ()

    fields: dict[Name, Source] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_sources(self.kind, self.fields)

    @classmethod
    def detect(cls, source: Peek) -> Match | bool:
        if source.is_folder:
            return bool(_metadata(source.path)) or is_of_classes(source.path)
        columns = source.row or (header_of(source.head[0]) if source.head else ())
        return source.path.name in METADATA and FILE_NAME in columns

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        return [place for path in paths for place in ([path] if path.is_file() else _metadata(path))]

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        """Raises WorkbenchError if a folder has no image."""
        for path in paths:
            described = self.inputs([path])
            named: set[str] = set()
            for place in described:
                yield from _described(place, path if path.is_dir() else place.parent, named)
            if described and path.is_dir():
                yield from _not_named(path, named)
            images = [] if described else classed(path)
            if not described and not images:
                raise WorkbenchError(f"the folder {path} has no images in folders, nor a file metadata.jsonl")
            for image in images:
                found = image.path.stat()
                ref = ImageRef(str(image.path), 0, found.st_size, found.st_mtime_ns)
                split = {} if image.split is None else {"split": image.split}
                yield Record((image.name, {"label": image.label, **split}, ref), ref.size, f"{path.name}:{image.name}")

    def sample(self, record: Record) -> Sample | Drop:
        if isinstance(record.data, Drop):
            return record.data
        name, row, ref = record.data
        if isinstance(ref, Absent):
            return Drop(ref.reason("image"))
        sources = row_sources(row, self.kind, self.fields)
        taken = fill(row, sources, record.where)
        used = columns_of(sources) | {FILE_NAME}
        fields = {**taken, "meta": {column: value for column, value in row.items() if column not in used}}
        return image_sample(name, ref, {**fields, "key": record_key(name.rpartition(".")[0])}, record.where)


def _described(place: Path, root: Path, named: set[str]) -> Iterator[Record]:
    """The rows of a metadata file, each with its image from the file's folder, which is added to `named`."""
    malformed, store = Malformed(), ImageStore([place.parent], nested=False)
    inner = place.parent.relative_to(root).as_posix()
    split = inner.partition("/")[0] if inner.partition("/")[0].lower() in SPLITS else None
    for number, row in _rows(place, malformed):
        yield from malformed.records()
        where = f"{place.name}:{number}"
        with malformed:
            name = require(row, FILE_NAME, str, where)
            ref = store.look(name)
            named |= {ref.path} if ref else set()
            fields = row if split is None else {"split": split, **row}
            listed = name if inner == "." else f"{inner}/{name}"
            yield Record((listed, fields, ref), max(1, ref.size if ref else 1), where)
    yield from malformed.records()


def _not_named(folder: Path, named: set[str]) -> Iterator[Record]:
    """A drop for each image of a folder that no row names."""
    for path in everything(folder):
        if plain_suffix(path) in IMAGES and not is_about(path, folder) and str(real_path(path)) not in named:
            yield Record(Drop("no row names the image"), 1, f"{folder.name}:{path.relative_to(folder).as_posix()}")


def _rows(place: Path, malformed: Malformed) -> Iterator[tuple[int, dict[str, Any]]]:
    if plain_suffix(place) == ".csv":
        yield from rows_of_table(place, malformed)
        return
    for record in row_records([place]):
        with malformed:
            yield record.data[1], parse_row(record.data[2], record.where)


def _metadata(folder: Path) -> list[Path]:
    """The metadata files of a folder and its subfolders."""
    return sorted(place for name in METADATA for pattern in (name, f"*/{name}") for place in folder.glob(pattern))


def is_of_classes(folder: Path) -> bool:
    """Whether all files of a folder are images in at least two subfolders."""
    labels: set[str] = set()
    for place, _, names in os.walk(folder):
        data = [name for name in names if not is_about(Path(place, name), folder)]
        if any(plain_suffix(Path(name)) not in IMAGES for name in data) or (data and Path(place) == folder):
            return False
        labels |= {place} if data else set()
    return len(labels) > 1


def classed(folder: Path) -> list[Classed]:
    """The images of a folder of classes, sorted."""
    found = []
    for path in everything(folder):
        inner = path.relative_to(folder)
        if plain_suffix(path) in IMAGES and not is_about(path, folder) and len(inner.parts) > 1:
            split = inner.parts[0] if len(inner.parts) > 2 and inner.parts[0].lower() in SPLITS else None
            label = "/".join(inner.parts[1 if split else 0 : -1])
            found.append(Classed(path, inner.as_posix(), label, split))
    return found
