"""Rows of a table and their cells: CSV, whose quoted cells may contain line ends, and TSV, which is quoted on demand.

Quoted tables are read by Python's `csv` (RFC 4180, and the variants of spreadsheets): a quote opens a cell only at its
beginning; inside an unquoted cell it is a letter. Where quotes inside of cells are escaped with backslashes instead of
doubled, as Spark and MySQL write them, the whole table is read so.
"""

from __future__ import annotations

import csv
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from pipelines.readers.reader import Malformed, MalformedError, parse_text
from pipelines.sources.files import LINE_LIMIT, lines, plain_suffix
from workbench.core.errors import WorkbenchError

log = logging.getLogger(__name__)

Separator = Literal["tab", "comma", "semicolon", "bar"]
SUFFIXES = (".tsv", ".csv")
SEPARATORS: dict[Separator, str] = {"tab": "\t", "comma": ",", "semicolon": ";", "bar": "|"}
QUOTED = ("comma", "semicolon")
ROW_LIMIT = 16 << 20
"""Most bytes of a row of several lines. A quote that is still open then is considered never closed."""
_ESCAPE = re.compile(r'\\(["\\])')
_END = "\0end of the table"


class TableLayout(NamedTuple):
    """A table's columns, its separator, and whether cells may be quoted."""

    columns: tuple[str, ...]
    separator: str
    quoted: bool


class TableRow(NamedTuple):
    """The cells of a row, the number of its first line, and its bytes."""

    number: int
    cells: list[str]
    size: int


def table(
    path: Path,
    malformed: Malformed,
    separator: Separator | None = None,
    quoted: bool | None = None,
    *,
    header: bool = True,
    by_header: bool = False,
) -> tuple[TableLayout, Iterator[TableRow]] | None:
    """The layout of a table and its rows after the header, blank ones left out; None where the file has no row.

    Args:
        malformed: collects rows that are not UTF-8, and quotes that are never closed: the quote's line is dropped, and
            reading continues with the next one.
        separator: by default a comma or semicolon in a .csv, by its first line, else a tab.
        quoted: whether cells may be quoted; by default if the separator is a comma or a semicolon.
        header: whether the first row names the columns; without one they are named 0, 1, ... A first column without a
        name is
            an index, as `DataFrame.to_csv` of pandas writes it; it is dropped.
        by_header: the default separator is the most frequent one in the first line, whatever the file's name.

    Raises:
        WorkbenchError: columns without a name, or two with the same name.
    """
    first = next((line for _, line in lines(path) if line.strip()), b"").decode("utf-8", errors="replace")
    named = separator or (separator_of(first) if by_header else _usual_separator(path, first))
    quoted = named in QUOTED if quoted is None else quoted
    read = _quoted(path, SEPARATORS[named], malformed) if quoted else _plain(path, SEPARATORS[named], malformed)
    rows = (row for row in read if len(row.cells) > 1 or row.cells[0].strip())
    before = len(malformed)
    top = next(rows, None)
    if len(malformed) > before:  # no row can be read without the columns' names
        raise malformed[before]
    if top is None:
        return None
    columns = tuple(cell.strip() for cell in top.cells) if header else tuple(map(str, range(len(top.cells))))
    if header and columns[0] == "" and len(columns) > 1:
        columns = columns[1:]
        rows = (row._replace(cells=row.cells[1:]) for row in rows)
    if len(set(columns)) != len(columns) or "" in columns:
        count = "" if by_header or "" in columns else ", or add --option header=false, which numbers them from 0"
        raise WorkbenchError(
            f"{path}: the columns {', '.join(map(repr, columns))} have a missing or repeated name; name them "
            f"in the first line{count}"
        )
    return TableLayout(columns, SEPARATORS[named], quoted), rows if header else _with_first(top, rows)


def rows_of_table(
    path: Path, malformed: Malformed, separator: Separator | None = None, quoted: bool | None = None
) -> Iterator[tuple[int, dict[str, str]]]:
    """(line number, cells by column) of a table with a header; the default separator is the most frequent one in the
    header.

    A row with more or fewer cells than the header, or that is not UTF-8, is `malformed`.
    """
    found = table(path, malformed, separator, quoted, by_header=True)
    if found is None:
        return
    layout, rows = found
    opened = False
    for row in rows:
        with malformed:
            yield row.number, cells_by_column(row.cells, layout.columns, f"{path.name}:{row.number}", opened)
        last = row.cells[-1]
        opened = opened or (not layout.quoted and last.startswith('"') and last.count('"') % 2 == 1)


def cells_by_column(cells: list[str], columns: tuple[str, ...], where: str, opened: bool = False) -> dict[str, str]:
    """
    Args:
        opened: whether an earlier cell began with a quote that its line does not close.

    Raises:
        MalformedError: more or fewer cells than columns.
    """
    if len(cells) != len(columns):
        quoted = opened or any(cell.startswith('"') for cell in cells)
        hint = "; if the cells are quoted, add --option quoted=true" if quoted else ""
        raise MalformedError(f"a line of {len(cells)} columns", where, f"the first line has {len(columns)}{hint}")
    return dict(zip(columns, cells, strict=True))


def separator_of(first: str) -> Separator:
    """The separator of a first line: the most frequent candidate."""
    return max(SEPARATORS, key=lambda name: first.count(SEPARATORS[name]))


def header_of(first: str) -> set[str]:
    """The columns in a first line, if it is a header."""
    return {cell.strip().strip('"') for cell in first.split(SEPARATORS[separator_of(first)])}


def _usual_separator(path: Path, first: str) -> Separator:
    if plain_suffix(path) != ".csv":
        return "tab"
    return "semicolon" if first.count(";") > first.count(",") else "comma"


def _with_first(first: TableRow, rows: Iterator[TableRow]) -> Iterator[TableRow]:
    yield first
    yield from rows


def _plain(path: Path, separator: str, malformed: Malformed) -> Iterator[TableRow]:
    """A row for each line; a quote is a letter. Cells that look quoted are logged once."""
    reported = False
    for number, line in lines(path):
        where = f"{path.name}:{number}"
        with malformed:
            cells = parse_text(line, where).split(separator)
            if not reported and b'""' in line and (found := next(filter(_looks_quoted, cells), None)) is not None:
                reported = True
                log.warning(
                    "%s: the cell %.60s looks quoted. Cells of this table are read with their quotes. If a program "
                    "wrote it that quotes cells (csv.writer, pandas), use --option quoted=true",
                    where,
                    found,
                )
            yield TableRow(number, cells, len(line))


def _looks_quoted(cell: str) -> bool:
    """Whether quotes enclose the cell and each quote inside is doubled."""
    inside = cell[1:-1]
    return len(cell) > 3 and cell[0] == cell[-1] == '"' and '""' in inside and '"' not in inside.replace('""', "")


def _quoted(path: Path, separator: str, malformed: Malformed) -> Iterator[TableRow]:
    """Rows as `csv` reads them."""
    csv.field_size_limit(max(csv.field_size_limit(), LINE_LIMIT))
    source = _Lines(path, escaped=_has_escapes(path, separator))
    reader = csv.reader(source, delimiter=separator)
    while True:
        source.begin()
        with malformed:
            try:
                cells = next(reader)
            except csv.Error as error:
                raise MalformedError("not CSV", f"{path.name}:{source.first}", str(error)) from error
            where = f"{path.name}:{source.first}"
            if cells and cells[-1].endswith(_END):
                if cells == [_END]:
                    return
                source.reread()
                raise MalformedError("a quote is opened and never closed", where)
            if source.undecodable:
                parse_text(source.undecodable, where)
            yield TableRow(source.first, cells or [""], source.size)


def _has_escapes(path: Path, separator: str) -> bool:
    """Whether the quotes in a table's quoted cells are escaped with backslashes; logs what it finds.

    The evidence is a quoted cell in which text follows an escaped quote, so that the table is no strict CSV, and none
    in which text follows a doubled one.
    """
    sign = re.escape(separator.encode())
    escaped = re.compile(rb'(?:^|%s)"(?:[^"\\]|\\.)*\\"(?!%s|"|\r|$)' % (sign, sign))
    doubled = re.compile(rb'[^"\\%s]""(?!%s|"|\r|$)' % (sign, sign))
    first, other = 0, 0
    for number, line in lines(path):
        if not first and b'\\"' in line and escaped.search(line):
            first = number
        if not other and b'""' in line and doubled.search(line):
            other = number
    if not first or _is_strict(path, separator):
        return False
    if other:
        log.warning(
            "%s: line %d escapes a quote with a backslash, and line %d doubles one; doubled quotes are read, and "
            "backslashes are letters. Write the table in one way",
            *(path.name, first, other),
        )
    else:
        log.warning("%s: quotes in its cells are escaped with backslashes; all of its cells are read so", path.name)
    return not other


def _is_strict(path: Path, separator: str) -> bool:
    """Whether a separator or a line's end follows each quote that closes a cell."""
    source = _Lines(path)
    reader = csv.reader(source, delimiter=separator, strict=True)
    try:
        while True:
            source.begin()
            if next(reader)[-1:] == [_END]:
                return True
    except csv.Error:
        return False


class _Lines:
    """The lines of a file for `csv.reader`, which takes as many as the quotes of a row need.

    After the last one comes the line `_END`: a row of its own, unless a quote is still open. It also comes when a row
    reaches `ROW_LIMIT`.

    Attributes:
        first: the number of the row's first line.
        size: bytes of the row so far.
        undecodable: the first line of the row that is not UTF-8.
    """

    def __init__(self, path: Path, escaped: bool = False) -> None:
        self._lines, self._escaped = lines(path), escaped
        self._waiting: list[tuple[int, bytes]] = []
        self._row: list[tuple[int, bytes]] = []
        self._pieces: list[str] = []
        self.first = self.size = 0
        self.undecodable = b""
        self._ended = self._begun = False
        self._number = self._returns = 0

    def begin(self) -> None:
        """Begin a new row."""
        self._row, self.size, self.undecodable, self._ended, self._begun = [], 0, b"", False, True

    def reread(self) -> None:
        """Return the lines of this row again, except the first: it is not a row of several lines."""
        self._waiting = self._row[:0:-1] + self._waiting
        self._pieces = []

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        if self._pieces:
            self._returns += 1
            return self._taken(self._pieces.pop())
        if self._ended:  # within a quote
            raise StopIteration
        found = None
        if self.size < ROW_LIMIT or not self._row:
            found = self._waiting.pop() if self._waiting else next(self._lines, None)
        if found is None:
            self._ended = True
            return _END
        self._number = found[0]
        self._row.append(found)
        line = found[1]
        self.size += len(line) + 1
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            self.undecodable = self.undecodable or line
            text = line.decode("utf-8", errors="replace")
        if self._escaped:
            text = _ESCAPE.sub(lambda found: '""' if found[1] == '"' else found[1], text)
        if "\r" in text:  # inside a line: csv reads it as a line end, like old Macs'
            *inner, last = text.split("\r")
            self._pieces = [last + "\n", *(piece + "\r" for piece in reversed(inner))]
            return self._taken(self._pieces.pop())
        return self._taken(text + "\n")

    def _taken(self, piece: str) -> str:
        if self._begun:
            self.first, self._begun = self._number + self._returns, False
        return piece
