"""Names and descriptions as lines `id<tab>text`: kg-bert's entity2text.txt, FB15k's mid2name, WordNet's definitions.

A first line that names the columns is a header. A CSV always has one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipelines.readers.reader import Malformed, MalformedError, parse_text
from pipelines.readers.table_rows import table
from pipelines.sources.files import lines, plain_suffix
from workbench.core.errors import WorkbenchError

logger = logging.getLogger(__name__)
CSV = ".csv"
SUFFIXES = (".tsv", ".txt", CSV)
HEADERS = {
    "id": {"id", "identifier", "entity", "relation", "qid", "mid"},
    "label": {"label", "name", "title"},
    "description": {"description", "definition", "gloss", "extract"},
}
"""Usual names of the columns of texts."""
DESCRIBES = re.compile("long|descri|defini|gloss", re.IGNORECASE)
"""A file with such a name has descriptions in its second column; any other has labels."""
QUOTED = re.compile(r'"(.*)"(?:@[A-Za-z-]+)?')


def column_rows(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Each id with its label or description; with three columns, with both. Quotes and languages (`"..."@en`) are
    removed.

    Raises:
        MalformedError: a line that is not UTF-8, or without an id or a second column.
        WorkbenchError: a CSV whose first line does not name the columns.
    """
    two = ("id", "description" if DESCRIBES.search(path.name) else "label")
    header: tuple[str, ...] | None = None
    for where, cells in _csv_cells(path) if plain_suffix(path) == CSV else _tab_cells(path):
        if header is None:
            header = _header(cells)
            if header:
                logger.info("%s: %s is read as a header, not as texts", where, ", ".join(cells))
                continue
            if plain_suffix(path) == CSV:
                raise WorkbenchError(
                    f"{path}: the first line names the columns {', '.join(cells)}; expected id, and label or "
                    "description or both. Name them so, or write JSON lines, or id<tab>label without a header"
                )
        names = header or (two if len(cells) == 2 else ("id", "label", "description"))
        row = dict(zip(names, cells, strict=False))
        if len(cells) != len(names) or not row["id"]:
            wrong = f"found {len(cells)} columns" if row.get("id") else "the id is empty"
            raise MalformedError("expected " + "<tab>".join(names if header else ("id", "text")), where, wrong)
        yield row.pop("id"), {name: _plain(text) for name, text in row.items()}


def _header(cells: Sequence[str]) -> tuple[str, ...]:
    """The fields that the columns of a first line are, if it names an id and texts; else none."""
    plain = [cell.strip("#:_ ").casefold().removesuffix("_id").removesuffix(" id") for cell in cells]
    found = [field for name in plain for field, names in HEADERS.items() if name in names]
    return tuple(found) if len(cells) == len({*found}) > 1 and "id" in found else ()


def _tab_cells(path: Path) -> Iterator[tuple[str, list[str]]]:
    for number, line in lines(path):
        if line.strip():
            where = f"{path.name}:{number}"
            yield where, [column.strip() for column in parse_text(line, where).split("\t")]


def _csv_cells(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The header and the rows of a CSV."""
    malformed = Malformed()
    found = table(path, malformed, by_header=True)
    if found is not None:
        yield path.name, [*found[0].columns]
        for row in found[1]:
            if malformed:
                break
            yield f"{path.name}:{row.number}", [cell.strip() for cell in row.cells]
    if malformed:
        raise malformed[0]


def _plain(text: str) -> str:
    quoted = QUOTED.fullmatch(text)
    return quoted[1] if quoted else text
