"""Lines of a table and their cells: TSV, which is never quoted, and CSV, whose quoted cells may hold line ends."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from pipelines.readers.reader import Malformed, MalformedError
from pipelines.sources.files import decode, lines, plain_suffix
from workbench.errors import WorkbenchError

Separator = Literal["tab", "comma", "semicolon", "bar"]
SUFFIXES = (".tsv", ".csv")
SEPARATORS: dict[Separator, str] = {"tab": "\t", "comma": ",", "semicolon": ";", "bar": "|"}
QUOTED = ("comma", "semicolon")


class Layout(NamedTuple):
    """What a file's first line says: its columns, and what parts them; `quoted` cells may hold line ends."""

    columns: tuple[str, ...]
    separator: str
    quoted: bool


def layout_of(path: Path, first: str, separator: Separator | None, *, header: bool = True) -> Layout:
    """The layout of a file by its first line; without `header` columns are called 0, 1, ...

    By default the separator is a comma or semicolon in a .csv, as the first line has it, else a tab.

    Raises:
        WorkbenchError: columns without a name, or two of the same.
    """
    named = separator or ("tab" if plain_suffix(path) != ".csv" else _of_csv(first))
    cells = cells_of(first, Layout((), SEPARATORS[named], named in QUOTED), str(path))
    columns = tuple(cell.strip() for cell in cells) if header else tuple(map(str, range(len(cells))))
    if len(set(columns)) != len(columns) or "" in columns:
        raise WorkbenchError(
            f"{path}: the columns {', '.join(map(repr, columns))} are not all named, or not differently; name them "
            "in the first line, or say --option header=false and count them from 0"
        )
    return Layout(columns, SEPARATORS[named], named in QUOTED)


def table_lines(path: Path, separator: Separator | None) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank with their numbers, those of a quoted cell together.

    Raises:
        WorkbenchError: a quote that is never closed.
    """
    quoted = (separator or ("comma" if plain_suffix(path) == ".csv" else "tab")) in QUOTED
    begun, number = b"", 0
    for at, line in lines(path):
        whole = begun + b"\n" + line if begun else line
        number = number if begun else at
        begun = whole if quoted and whole.count(b'"') % 2 else b""
        if not begun and whole.strip():
            yield number, whole
    if begun:
        raise WorkbenchError(f"{path}:{number}: a quote is opened and never closed; the file is cut off or no CSV")


def rows_of_table(
    path: Path, malformed: Malformed, separator: Separator | None = None
) -> Iterator[tuple[int, dict[str, str]]]:
    """(line number, cells by column) of a table with a header; by default it is parted by what its header has most of.

    A line with more or fewer cells than the header, or that is not UTF-8, is `malformed`.
    """
    named = separator or separator_of(next((decode(line, str(path)) for _, line in lines(path)), ""))
    layout: Layout | None = None
    for number, line in table_lines(path, named):
        where = f"{path.name}:{number}"
        if layout is None:
            layout = layout_of(path, decode(line, where), named)
            continue
        with malformed:
            cells, width = cells_of(line, layout, where), len(layout.columns)
            if len(cells) != width:
                raise MalformedError(f"a line of {len(cells)} columns", where, f"the first line has {width}")
            yield number, dict(zip(layout.columns, cells, strict=True))


def cells_of(line: bytes | str, layout: Layout, where: str) -> list[str]:
    """
    Raises:
        MalformedError: not UTF-8.
    """
    try:
        text = line if isinstance(line, str) else line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedError("not valid UTF-8", where, f"{error.reason} at column {error.start}") from error
    if not layout.quoted:
        return text.split(layout.separator)
    return next(csv.reader(io.StringIO(text, newline=""), delimiter=layout.separator), [])


def separator_of(first: str) -> Separator:
    """What parts the columns of a first line, by what stands in it most often."""
    return max(SEPARATORS, key=lambda name: first.count(SEPARATORS[name]))


def header_of(first: str) -> set[str]:
    """The columns that a first line names, if it is a header."""
    return {cell.strip().strip('"') for cell in first.split(SEPARATORS[separator_of(first)])}


def _of_csv(first: str) -> Separator:
    return "semicolon" if first.count(";") > first.count(",") else "comma"
