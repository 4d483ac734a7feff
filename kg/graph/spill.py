"""Rows of numbers, kept in a file without a name as they come, and read again as an array that is memory-mapped."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

BLOCK = 1 << 18
"""Rows that whoever goes through such an array takes at once."""


class Spill:
    """Rows of `columns` numbers in a temporary file of `folder`, by default in that of the system (`$TMPDIR`)."""

    def __init__(self, dtype: type[np.generic], columns: int, folder: Path | None = None) -> None:
        self.dtype = np.dtype(dtype)
        self.columns = columns
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # it lives as long as the spill
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def extend(self, rows: np.ndarray) -> None:
        """Append rows [n, columns]."""
        self._file.write(np.ascontiguousarray(rows, self.dtype).data)
        self._count += len(rows)

    def rows(self) -> np.ndarray:
        """All rows so far: [rows, columns], read-only."""
        self._file.flush()
        shape = self._count, self.columns
        return np.memmap(self._file, self.dtype, "r", shape=shape) if self._count else np.empty(shape, self.dtype)

    @classmethod
    def like(cls, rows: np.ndarray, folder: Path | None = None) -> np.ndarray:
        """An array of the shape and type of another one, to be written to, in such a file."""
        with tempfile.TemporaryFile(dir=folder) as file:  # a mapping keeps it
            file.truncate(rows.nbytes)
            return np.memmap(file, rows.dtype, "r+", shape=rows.shape) if rows.size else np.empty_like(rows)
