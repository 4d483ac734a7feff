"""Names -> numbers in the order of their first appearance, for more names than a dict could hold.

The names lie in a temporary file; what stays in memory is their 128-bit digests (BLAKE2b), sorted, and their numbers:
20 bytes a name, twice that for a moment. Names are asked for many at a time.
"""

from __future__ import annotations

import hashlib
import mmap
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kg.graph.spill import Spill
from kg.graph.strings import StringTable
from workbench.core.errors import WorkbenchError

DIGEST = 16


class Numbering:
    """Numbers from 0, in order of first appearance. Its files lie in `folder`, by default where the system has them."""

    def __init__(self, folder: Path | None = None) -> None:
        self._blob = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # it lives as long as the numbering
        self._ends = Spill(np.int64, 1, folder)
        self._ends.extend(np.zeros((1, 1), np.int64))
        self._length = 0
        self._runs: list[tuple[np.ndarray, np.ndarray]] = []  # (sorted digests, numbers), each half of the one before

    def __len__(self) -> int:
        return len(self._ends) - 1

    def numbers(self, names: Sequence[str]) -> np.ndarray:
        """The number of each name [names] int32; a new name gets the next one.

        Raises:
            WorkbenchError: a name is not valid Unicode (half of a surrogate pair).
        """
        places: dict[str, int] = {}
        which = np.fromiter((places.setdefault(name, len(places)) for name in names), np.int32, len(names))
        spelt = [_encoded(name) for name in places]
        digests = np.frombuffer(
            b"".join(hashlib.blake2b(name, digest_size=DIGEST).digest() for name in spelt), f"S{DIGEST}"
        )
        found = self._find(digests)
        new = np.flatnonzero(found < 0)
        if len(new):
            found[new] = np.arange(len(self), len(self) + len(new))
            order = np.argsort(digests[new], kind="stable")
            self._add_run(digests[new][order], found[new][order])
            self._write([spelt[place] for place in new.tolist()])
        return found[which]

    def names(self) -> StringTable:
        """All names by number; without an index."""
        self._blob.flush()
        ends = self._ends.rows()[:, 0]
        blob = mmap.mmap(self._blob.fileno(), 0, access=mmap.ACCESS_READ) if self._length else b""
        return StringTable(blob, np.lib.stride_tricks.sliding_window_view(ends, len(self)))

    def _find(self, digests: np.ndarray) -> np.ndarray:
        """Their numbers; -1 for new ones."""
        found = np.full(len(digests), -1, np.int32)
        for known, numbers in self._runs:
            place = np.minimum(np.searchsorted(known, digests), len(known) - 1)
            here = known[place] == digests
            found[here] = numbers[place[here]]
        return found

    def _add_run(self, digests: np.ndarray, numbers: np.ndarray) -> None:
        while self._runs and len(self._runs[-1][0]) < 2 * len(digests):
            others, theirs = self._runs.pop()
            place = np.searchsorted(others, digests)
            digests, numbers = np.insert(others, place, digests), np.insert(theirs, place, numbers)
        self._runs.append((digests, numbers))

    def _write(self, spelt: Sequence[bytes]) -> None:
        ends = self._length + np.cumsum([len(name) for name in spelt])
        self._blob.write(b"".join(spelt))
        self._ends.extend(ends[:, None])
        self._length = int(ends[-1])


def _encoded(name: str) -> bytes:
    if not isinstance(name, str):
        raise WorkbenchError(f"the id {name!r} is a {type(name).__name__}; a reader yields triples of three strings")
    try:
        return name.encode()
    except UnicodeEncodeError as error:
        raise WorkbenchError(f"the id {name!r} is not valid Unicode ({error.reason}); repair it") from error
