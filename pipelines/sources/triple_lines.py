"""Triples in lines: head, relation and tail parted by tabs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from workbench.errors import WorkbenchError


def read_triples(path: Path) -> Iterator[tuple[str, str, str]]:
    """The lines of a file as (head, relation, tail).

    Raises:
        WorkbenchError: there is no such file, or a line has not three columns.
    """
    if not path.is_file():
        raise WorkbenchError(f"there is no file {path}, which should hold triples")
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            columns = line.rstrip("\n").split("\t")
            if len(columns) != 3:
                raise WorkbenchError(
                    f"{path}, line {number}: {len(columns)} columns; a triple is head, relation and tail parted by tabs"
                )
            yield columns[0], columns[1], columns[2]
