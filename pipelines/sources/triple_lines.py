"""Triples in lines: head, relation and tail parted by tabs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipelines.sources.files import decode, lines
from workbench.errors import WorkbenchError


def read_triples(path: Path) -> Iterator[tuple[str, str, str]]:
    """The lines of a file as (head, relation, tail).

    Raises:
        WorkbenchError: there is no such file, it has no line, or a line has not three columns, or is not UTF-8; says
            which.
    """
    if not path.is_file():
        raise WorkbenchError(f"there is no file {path}, which should hold triples")
    number = 0
    for number, line in lines(path):
        columns = decode(line, f"{path}, line {number}").split("\t")
        if len(columns) != 3:
            raise WorkbenchError(
                f"{path}, line {number}: {len(columns)} columns; a triple is head, relation and tail parted by tabs"
            )
        yield columns[0], columns[1], columns[2]
    if not number:
        raise WorkbenchError(f"{path} is empty: it should hold triples, a line of head, relation and tail for each")
