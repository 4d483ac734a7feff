"""Strings on disk: one blob of UTF-8 and the place of each string in it, memory-mapped.

Millions of ids, names and descriptions cost a reader nothing until they are asked for. A table written with an index
also answers "which row has this string?": the sorted 64-bit hashes of the strings, searched by bisection, so that no
process builds a dict of millions of entries.
"""

from __future__ import annotations

import hashlib
import mmap
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import overload

import numpy as np

from workbench.core.errors import WorkbenchError


def digest64(text: str) -> int:
    """A 64-bit hash that is the same on every machine and in every process (BLAKE2b)."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


class StringTable(Sequence[str]):
    """Strings by row; `find` returns the row of a string.

    `blob` holds the UTF-8 of all strings, `spans` [2, rows] the first byte and the byte after the last of each.
    `hashes` (sorted) and `order` (their rows) are the index, where the table has one.
    """

    def __init__(
        self,
        blob: bytes | mmap.mmap | memoryview,
        spans: np.ndarray,
        hashes: np.ndarray | None = None,
        order: np.ndarray | None = None,
    ) -> None:
        self.blob = blob
        self.spans = spans
        self.hashes = hashes
        self.order = order
        # memoryviews give plain integers, several times faster than arrays do
        self._starts, self._ends = spans[0].data, spans[1].data
        self._hashes = None if hashes is None else hashes.data

    def __len__(self) -> int:
        return self.spans.shape[1]

    @overload
    def __getitem__(self, row: int) -> str: ...

    @overload
    def __getitem__(self, row: slice) -> list[str]: ...

    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        return str(self.blob[self._starts[row] : self._ends[row]], "utf-8")

    def find(self, text: str) -> int:
        """The row of a string, -1 where the table does not have it."""
        assert self._hashes is not None, "this table was written without an index"
        assert self.order is not None
        wanted = digest64(text)
        place = bisect_left(self._hashes, wanted)
        while place < len(self._hashes) and self._hashes[place] == wanted:
            row = int(self.order[place])
            if self[row] == text:
                return row
            place += 1
        return -1

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and self.find(text) >= 0

    def __reduce__(self) -> tuple[type[StringTable], tuple[object, ...]]:
        return StringTable, (bytes(self.blob[:]), self.spans, self.hashes, self.order)


class RowsOf(Mapping[str, int]):
    """The row of each string of a table with an index, as a mapping."""

    def __init__(self, table: StringTable) -> None:
        self.table = table

    def __getitem__(self, text: str) -> int:
        row = self.table.find(text)
        if row < 0:
            raise KeyError(text)
        return row

    def __iter__(self) -> Iterator[str]:
        return iter(self.table)

    def __len__(self) -> int:
        return len(self.table)


def string_arrays(strings: Iterable[str]) -> dict[str, np.ndarray]:
    """Strings and their index as arrays, by the names of the arguments of `StringTable`; the blob as uint8."""
    blob, ends, hashes = bytearray(), array("q", [0]), array("Q")
    for text in strings:
        blob += text.encode()
        ends.append(len(blob))
        hashes.append(digest64(text))
    bounds, unsorted = np.frombuffer(ends, np.int64), np.frombuffer(hashes, np.uint64)
    order = np.argsort(unsorted, kind="stable")
    return {
        "blob": np.frombuffer(bytes(blob), np.uint8),
        "spans": np.stack([bounds[:-1], bounds[1:]]),
        "hashes": unsorted[order],
        "order": order,
    }


class StringWriter:
    """Appends strings to a blob as they come; the caller keeps the spans that `write` returns."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self._file = (folder / f"{name}.blob").open("wb")
        self._end = 0

    def write(self, text: str) -> tuple[int, int]:
        """The first byte of the string in the blob and the byte after its last.

        Raises:
            WorkbenchError: the string is not valid Unicode (half of a surrogate pair).
        """
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise WorkbenchError(f"{self.name}: {text!r} is not valid Unicode ({error.reason}); repair it") from error
        start, self._end = self._end, self._end + len(data)
        self._file.write(data)
        return start, self._end

    def finish(self, spans: np.ndarray) -> None:
        """Close the blob and save the spans [2, rows] int64, with the blob's length as a last column."""
        self.close()
        length = np.full((2, 1), self._end, np.int64)
        np.save(self.folder / f"{self.name}.spans.npy", np.concatenate([spans, length], axis=1))

    def close(self) -> None:
        self._file.close()


def save_strings(folder: Path, name: str, strings: Iterable[str], *, index: bool = False) -> None:
    """Write strings in the order of their rows, with an index if they are to be found by value."""
    writer = StringWriter(folder, name)
    spans, hashes = array("q"), array("Q")
    for text in strings:
        spans.extend(writer.write(text))
        if index:
            hashes.append(digest64(text))
    writer.finish(np.frombuffer(spans, np.int64).reshape(-1, 2).T)
    if index:
        unsorted = np.frombuffer(hashes, np.uint64)
        order = np.argsort(unsorted, kind="stable")
        np.save(folder / f"{name}.hashes.npy", unsorted[order])
        np.save(folder / f"{name}.order.npy", order)


def open_strings(folder: Path, name: str) -> StringTable:
    """The table that `save_strings` or `StringWriter` wrote, memory-mapped.

    Raises:
        WorkbenchError: a file is missing or damaged.
    """
    blob = _open_blob(folder / f"{name}.blob")
    spans = open_array(folder, f"{name}.spans")
    spans, length = spans[:, :-1], int(spans[1, -1])
    if length != len(blob):
        raise WorkbenchError(
            f"{folder / name}.blob has {len(blob)} bytes, its table says {length}: it is damaged; build {folder} again"
        )
    if not (folder / f"{name}.hashes.npy").exists():
        return StringTable(blob, spans)
    return StringTable(blob, spans, open_array(folder, f"{name}.hashes"), open_array(folder, f"{name}.order"))


def open_array(folder: Path, name: str) -> np.ndarray:
    """The array `folder/name.npy`, memory-mapped and read-only.

    Raises:
        WorkbenchError: the file is missing or damaged.
    """
    path = folder / f"{name}.npy"
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except FileNotFoundError as error:
        raise WorkbenchError(f"{path} is missing; build {folder} again") from error
    except (ValueError, EOFError) as error:
        raise WorkbenchError(f"{path} is damaged ({error}); build {folder} again") from error


def _open_blob(path: Path) -> bytes | mmap.mmap:
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0:  # an empty file cannot be mapped
                return b""
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as error:
        raise WorkbenchError(f"{path} is missing; build {path.parent} again") from error
