"""Triples in lines: head, relation and tail parted by tabs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipelines.sources.files import decode, lines
from workbench.errors import WorkbenchError


def read_triples(path: Path) -> Iterator[tuple[str, str, str]]:
    """The lines of a file as (head, relation, tail).

    Raises:
        WorkbenchError: there is no such file, or a line has not three columns, or is not UTF-8; says which.
    """
    if not path.is_file():
        raise WorkbenchError(f"there is no file {path}, which should hold triples")
    for number, line in lines(path):
        columns = decode(line, f"{path}, line {number}").split("\t")
        if len(columns) != 3:
            raise WorkbenchError(
                f"{path}, line {number}: {len(columns)} columns; a triple is head, relation and tail parted by tabs"
            )
        yield columns[0], columns[1], columns[2]
