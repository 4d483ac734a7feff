"""Triples in lines: head, relation and tail separated by tabs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pipelines.sources.files import decode, lines
from workbench.core.errors import WorkbenchError

PLACES = ("head", "relation", "tail")


def what_is_wrong(columns: Sequence[str]) -> str:
    """The fault of columns that are not a triple: a wrong number, or an empty one; "" if there is none."""
    if len(columns) != len(PLACES):
        return f"found {len(columns)} columns"
    empty = [place for place, column in zip(PLACES, columns, strict=True) if not column.strip()]
    return f"the {' and the '.join(empty)} {'are' if len(empty) > 1 else 'is'} empty" if empty else ""


def read_triples(path: Path) -> Iterator[tuple[str, str, str]]:
    """The lines of a file as (head, relation, tail).

    Raises:
        WorkbenchError: there is no such file, it is empty, or a line does not have three non-empty columns or is not
        UTF-8; names the line.
    """
    if not path.is_file():
        raise WorkbenchError(f"there is no file {path}, which should hold triples")
    number = 0
    for number, line in lines(path):
        columns = decode(line, f"{path}, line {number}").split("\t")
        if wrong := what_is_wrong(columns):
            raise WorkbenchError(
                f"{path}, line {number}: {wrong}; a triple is head, relation and tail separated by tabs"
            )
        yield columns[0], columns[1], columns[2]
    if not number:
        raise WorkbenchError(f"{path} is empty: it should hold triples, a line of head, relation and tail for each")
