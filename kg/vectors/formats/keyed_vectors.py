"""Formats whose rows name their key: word2vec's, as text and binary, and PyTorch-BigGraph's export."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from kg.vectors.formats.rows import PretrainedVectors, Row, damaged, text_lines, vector_of

LONGEST_KEY = 4096
"""Bytes; what has a longer one is no word2vec file."""


def open_word2vec(place: Path, ids: Path | None) -> PretrainedVectors:
    """Text: a line "rows size", then a key and its numbers a line, separated by spaces. wikipedia2vec writes it too."""
    return PretrainedVectors([place], _counted(place))


def open_word2vec_binary(place: Path, ids: Path | None) -> PretrainedVectors:
    """Binary: a line "rows size", then a key, a space and float32 numbers for each row."""
    return PretrainedVectors([place], _binary(place))


def open_pbg(place: Path, ids: Path | None) -> PretrainedVectors:
    """The text of torchbiggraph_export_to_tsv: a key and its numbers a line, separated by tabs, without a header."""
    return PretrainedVectors([place], _rows(place, 1, None, "\t"))


def shape_of(path: Path) -> tuple[int, int] | None:
    """The rows and size in the first line of a word2vec file. None if the line is something else."""
    with path.open("rb") as file:
        columns = file.readline(64).split()
    return (int(columns[0]), int(columns[1])) if len(columns) == 2 and all(map(bytes.isdigit, columns)) else None


def _counted(path: Path) -> Iterator[Row]:
    count, size = _shape(path)
    found = 0
    for row in _rows(path, 2, size, " "):
        found += 1
        yield row
    if found != count:
        raise damaged(path, f"its first line says {count} rows, {found} follow")


def _rows(path: Path, first: int, size: int | None, separator: str) -> Iterator[Row]:
    for number, line in text_lines(path):
        if number < first or not line.strip():
            continue
        key, _, numbers = line.partition(separator)
        vector = vector_of(numbers, path, number, size)
        size = len(vector)
        yield key, vector


def _binary(path: Path) -> Iterator[Row]:
    count, size = _shape(path)
    with path.open("rb") as file:
        file.readline()
        for row in range(count):
            key = _key(file, path, row)
            data = file.read(4 * size)
            if len(data) != 4 * size:
                raise damaged(path, f"it ends in row {row + 1} of {count}")
            yield key, np.frombuffer(data, "<f4")
        if file.read().strip():
            raise damaged(path, f"more follows than the {count} rows of its first line")


def _key(file: BinaryIO, path: Path, row: int) -> str:
    """The bytes up to the next space; some writers end each row with a line feed."""
    key = bytearray()
    while (byte := file.read(1)) != b" ":
        if not byte or len(key) > LONGEST_KEY:
            raise damaged(path, f"row {row + 1} has no key")
        key += byte
    try:
        return key.lstrip(b"\n").decode()
    except UnicodeDecodeError as error:
        raise damaged(path, f"the key of row {row + 1} is no UTF-8") from error


def _shape(path: Path) -> tuple[int, int]:
    found = shape_of(path)
    if found is None or not found[1]:
        raise damaged(path, "its first line is not the number of rows and the size")
    return found
