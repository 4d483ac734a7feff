"""Captions as a table with a header: Flickr8k's and Flickr30k's `image,caption`, open_clip's `filepath title`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.reader import MalformedError, Peek
from pipelines.readers.table_rows import (
    SEPARATORS,
    SUFFIXES,
    Layout,
    Separator,
    cells_of,
    layout_of,
    separator_of,
    table_lines,
)
from pipelines.sources.files import decode, files, lines
from workbench.errors import WorkbenchError
from workbench.options.bounds import Name

IMAGE = ("image", "image_name", "filepath", "filename", "file_name", "path")
CAPTION = ("caption", "captions", "title", "comment", "text", "sentence", "raw")


@dataclass(frozen=True)
class CaptionsTable(ImageReader):
    """One caption a line; those of an image are gathered, in the order of the file.

    The columns are found by their usual names, or named. Others go to `meta` (of an image's first line), so a column
    `split` serves `--own-split`. The separator is what stands most often in the first line.
    """

    suffixes: ClassVar[tuple[str, ...]] = (*SUFFIXES, ".txt")

    image_column: Name | None = None
    caption_column: Name | None = None
    separator: Separator | None = None

    @classmethod
    def detect(cls, source: Peek) -> bool:
        if source.is_folder or not source.head:
            return False
        sign = SEPARATORS[separator_of(source.head[0])]
        columns = {cell.strip().strip('"') for cell in source.head[0].split(sign)}
        return bool(columns & set(IMAGE)) and bool(columns & set(CAPTION))

    def annotations(self, paths: Sequence[Path]) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        gathered: dict[str, tuple[dict[str, Any], str]] = {}
        for path in files(paths, self.suffixes):
            for row, where in self._rows(path):
                image, caption = row.pop(self._column(row, IMAGE, where)), row.pop(self._column(row, CAPTION, where))
                fields, _ = gathered.setdefault(image.strip(), ({"captions": [], "meta": dict(row)}, where))
                fields["captions"].append(caption.strip())
        for name, (fields, where) in gathered.items():
            yield name, fields, where

    def _rows(self, path: Path) -> Iterator[tuple[dict[str, str], str]]:
        layout: Layout | None = None
        separator = self.separator or separator_of(next((decode(line, str(path)) for _, line in lines(path)), ""))
        for number, line in table_lines(path, separator):
            where = f"{path.name}:{number}"
            if layout is None:
                layout = layout_of(path, decode(line, where), separator)
                continue
            cells = cells_of(line, layout, where)
            if len(cells) != len(layout.columns):
                told = f"the first line has {len(layout.columns)}"
                raise MalformedError(f"a line of {len(cells)} columns", where, told)
            yield dict(zip(layout.columns, cells, strict=True)), where

    def _column(self, row: Mapping[str, str], usual: tuple[str, ...], where: str) -> str:
        option = "image_column" if usual is IMAGE else "caption_column"
        chosen: str | None = getattr(self, option)
        found = [chosen] if chosen is not None else [name for name in usual if name in row]
        if not found or found[0] not in row:
            raise WorkbenchError(
                f"{where}: none of the columns {', '.join(row)} is called {chosen or ' or '.join(usual)}. Say which it "
                f"is: --option {option}=COLUMN"
            )
        return found[0]
