"""Pretrained vectors as rows of a key and its vector, and the parsing that their text formats share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workbench.core.errors import WorkbenchError

Row = tuple[str, np.ndarray]


class PretrainedVectors(NamedTuple):
    """Opened pretrained vectors: their files, and the rows of entities and relations, which are read on demand."""

    files: list[Path]
    entities: Iterable[Row]
    relations: Iterable[Row] = ()


def damaged(path: Path, what: str) -> WorkbenchError:
    """The error of a file that is not what its format says."""
    return WorkbenchError(f"{path} is damaged, or of another format: {what}; get it again, or name its --format")


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, from 1 on, without their ends.

    Raises:
        WorkbenchError: there is no such file, or it is no UTF-8.
    """
    if not path.is_file():
        raise WorkbenchError(f"there is no file {path}, which belongs to the vectors")
    with path.open(encoding="utf-8", newline="\n") as lines:
        try:
            for number, line in enumerate(lines, start=1):
                yield number, line.rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise damaged(path, f"it is no UTF-8 text ({error.reason} at byte {error.start})") from error


def vector_of(text: str, path: Path, number: int, size: int | None = None) -> np.ndarray:
    """[size] float32, of numbers separated by spaces or tabs.

    Raises:
        WorkbenchError: something else stands there, or more or fewer numbers than `size`; names the line.
    """
    try:
        with np.errstate(over="ignore"):  # what float32 does not hold is refused with what is not finite
            found = np.array(text.split(), np.float32)
    except ValueError as error:
        raise damaged(path, f"line {number}: {error}") from error
    if not len(found) or (size is not None and len(found) != size):
        raise damaged(path, f"line {number} has {len(found)} numbers, {size or 'at least one'} expected")
    return found


def names_in_order(path: Path) -> list[str]:
    """The ids of a file that numbers them, in the order of their numbers.

    Either OpenKE's layout, a count and then lines of id and number, or DGL-KE's, lines of number and id or of id and
    number without a count.

    Raises:
        WorkbenchError: the numbers are not 0 to n - 1, each once, or the count is another.
    """
    lines = [(number, line) for number, line in text_lines(path) if line.strip()]
    counted = bool(lines) and lines[0][1].strip().isdecimal()
    pairs = []
    for number, line in lines[1:] if counted else lines:
        columns = line.split("\t") if "\t" in line else line.split()
        if len(columns) != 2:
            raise damaged(path, f"line {number} has {len(columns)} columns, an id and its number expected")
        pairs.append((columns[0].strip(), columns[1].strip()))
    if counted and int(lines[0][1]) != len(pairs):
        raise damaged(path, f"its first line says {lines[0][1].strip()} ids, {len(pairs)} follow")
    for numbers, names in (1, 0), (0, 1):
        if (numbers, names) == (0, 1) and counted:
            break
        places = [pair[numbers] for pair in pairs]
        if all(place.isdecimal() for place in places) and {int(place) for place in places} == set(range(len(pairs))):
            return [names_of for _, names_of in sorted((int(pair[numbers]), pair[names]) for pair in pairs)]
    raise damaged(path, f"it does not number its {len(pairs)} ids from 0 on, each once")


def rows_of_table(names: Path, table: np.ndarray, path: Path) -> Iterator[Row]:
    """The rows of a table [ids, size] with the ids that a file numbers.

    Raises:
        WorkbenchError: the table has another shape than [ids, size].
    """
    ids = names_in_order(names)
    if table.ndim != 2 or len(table) != len(ids) or table.dtype.kind != "f":
        raise damaged(
            path,
            f"it has {table.dtype} {list(table.shape)}, floating-point [{len(ids)}, size] expected ({names.name})",
        )
    yield from zip(ids, table, strict=True)
