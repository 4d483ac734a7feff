"""Base class of lists of image URLs: a record for each row; the images are fetched, or found locally."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from pipelines.readers.image_text.images import ImageReader, image_sample
from pipelines.readers.reader import Drop, Malformed, MalformedError, Record
from pipelines.sources.files import files, record_key
from pipelines.sources.image_store import Absent, open_store
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Name
from workbench.sequences.sequence import Sample

URL = ("url", "URL", "image_url", "img_url")
CAPTION = ("caption", "TEXT", "text", "alt", "title")
"""Usual names of the columns in published lists (LAION, DataComp, COYO, img2dataset's)."""
WRITTEN = ("image", "sha256", "source", "source_sha256", "url")
"""Columns that describe the found image, which may differ from the listed one (DataComp's `sha256`)."""


class UrlRow(NamedTuple):
    """A row: `number` in its file; the other columns in `meta`."""

    file: str
    number: int
    url: str
    captions: list[str]
    meta: dict[str, Any]


@dataclass(frozen=True)
class UrlList(ImageReader):
    """With `fetch` (`prepare image-text --fetch`) the workers fetch the images.

    Without it the images are searched for in --images, by the last component of their URL.
    """

    fetch: bool = False

    def listed(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[UrlRow]:
        """The rows, streaming; rows that do not fit the format are read within `malformed`."""
        raise NotImplementedError(f"{type(self).__name__} must define listed")

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        return files(paths, self.suffixes) if self.fetch else super().inputs(paths)

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        """Raises WorkbenchError if no image is found, and none is to be fetched."""
        store = None if self.fetch else open_store(files(paths, self.suffixes)[0], self.images)
        found, lost, malformed = 0, "", Malformed()
        for row in self.listed(paths, malformed):
            yield from malformed.records()
            ref = store.look(name) if store is not None and (name := _name(row.url)) else Absent.MISSING
            found, lost = found + bool(ref), lost or row.url
            size = ref.size if ref else len(row.url) + sum(map(len, row.captions))
            yield Record((row, ref), size, f"{row.file}:{row.number}")
        yield from malformed.records()
        if store is not None:
            store.log_found()
        if store is not None and lost and not found:
            raise WorkbenchError(
                f"none of the images is in {store.describe()} (the first is {lost[:200]!r}). Fetch them with "
                "--fetch, or name their folder or tar file with --images"
            )

    def sample(self, record: Record) -> Sample | Drop:
        row, ref = record.data
        if not row.url:
            return Drop("no URL")
        name = f"{row.file.partition('.')[0]}-{row.number}"
        fields: Sample = {"key": record_key(name), "captions": row.captions, "meta": {**row.meta, "url": row.url}}
        if ref:
            return image_sample(_name(row.url), ref, fields, record.where)
        if not self.fetch:
            return Drop(ref.reason("image"))
        return {**fields, "meta": {**fields["meta"], "source": row.file}}


def row_of(file: str, number: int, row: Mapping[str, Any], url: str, caption: str) -> UrlRow:
    """A row from the columns of URL and caption; values that JSON cannot hold are removed from `meta`.

    A column with a name of the found image's own fields, such as `sha256`, becomes `listed_sha256`.

    Raises:
        MalformedError: a URL that is not a text, or captions that are neither a text nor a list of texts.
    """
    where = f"{file}:{number}"
    others = {name: value for name, value in row.items() if name not in (url, caption) and _reported(value)}
    meta = {f"listed_{name}" if name in WRITTEN else name: value for name, value in others.items()}
    (address,) = _texts(row[url], url, where, most=1)
    return UrlRow(file, number, address, _texts(row[caption], caption, where), meta)


def _texts(value: Any, name: str, where: str, most: int | None = None) -> list[str]:
    """A cell as texts: one, or those of a list; a missing value (null, NaN) has none."""
    found = value if isinstance(value, list) and most is None else [value]
    texts = ["" if each is None or (isinstance(each, float) and math.isnan(each)) else each for each in found]
    if odd := next((each for each in texts if not isinstance(each, str)), None):
        allowed = "a text" if most else "a text, or a list of texts"
        raise MalformedError(f"the column {name!r} holds {type(odd).__name__}", where, f"allowed: {allowed}")
    return [text.strip() for text in texts] or [""]


def column(columns: Sequence[str], usual: Sequence[str], chosen: Name | None, option: str, where: str) -> str:
    """The column with the chosen or a usual name.

    Raises:
        WorkbenchError: there is no such column.
    """
    found = [name for name in ((chosen,) if chosen is not None else usual) if name in columns]
    if not found:
        raise WorkbenchError(
            f"{where}: none of the columns {', '.join(columns)} is named {chosen or ' or '.join(usual)}. Name it "
            f"with --option {option}=COLUMN"
        )
    return found[0]


def _name(url: str) -> str:
    """The last component of the URL's path; None if it has no readable path."""
    try:
        return PurePosixPath(unquote(urlsplit(url).path)).name.replace("\0", "")
    except ValueError:
        return ""


def _reported(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_reported, value))
    if isinstance(value, dict):
        return all(map(_reported, value.values()))
    return isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))
