"""Names by their spelling, and the longest one at a place: what both ways of finding them fall back on."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Sequence

import numpy as np

from kg.linking.boundaries import boundary, joins

Found = tuple[int, int, int]
"""The number of a name, and where it begins and ends."""
PREFIX = 6


class Names:
    """An index of names, none empty and none twice; some 15 bytes a name where they lie on disk."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        hashes = np.fromiter(map(hash, names), np.int64, len(names))  # of this process
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._order = hashes[order].data, order.astype(np.int32).data
        lengths: dict[str, set[int]] = {}
        for name in names:
            if len(name) >= PREFIX:
                lengths.setdefault(name[:PREFIX], set()).add(len(name))
        self._lengths = {prefix: tuple(sorted(found, reverse=True)) for prefix, found in lengths.items()}
        self._short = tuple(sorted({len(name) for name in names if len(name) < PREFIX}, reverse=True))
        self.longest = max(map(len, names), default=0)

    def number(self, folded: str) -> int:
        """The number of a folded name, -1 where there is none."""
        wanted = hash(folded)
        place = bisect_left(self._hashes, wanted)
        while place < len(self._hashes) and self._hashes[place] == wanted:
            number = self._order[place]
            if self.names[number] == folded:
                return number
            place += 1
        return -1

    def longest_at(self, folded: str, start: int, inner: Container[int] = ()) -> Found | None:
        """The longest name at a boundary that ends at one; places that are `inner` are none."""
        if joins(folded, start):
            number = self.number(folded[start]) if start + 1 not in inner else -1
            return (number, start, start + 1) if number >= 0 else None
        lengths = self._lengths.get(folded[start : start + PREFIX], ())
        for length in (*lengths, *self._short):
            stop = start + length
            if stop <= len(folded) and boundary(folded, stop) and stop not in inner:
                number = self.number(folded[start:stop])
                if number >= 0:
                    return number, start, stop
        return None

    def rescan(
        self, folded: str, start: int, stop: int, end: int, found: list[Found], inner: Container[int] = ()
    ) -> int:
        """Find the names that begin in [start, stop) and not before `end`; returns the new end.

        Places that are `inner`, within a word of a script without spaces, are no boundaries.

        For where an automaton proposed a name that breaks a word or overlaps: it may hide others, a shorter one at its
        start, and those that begin at a boundary within it. One of a single word has none within and hides nothing.
        """
        i = max(start, end)
        while i < stop:
            begins = folded[i] != " " and i not in inner and boundary(folded, i)
            match = self.longest_at(folded, i, inner) if begins else None
            if match is None:
                i += 1
            else:
                found.append(match)
                i = end = match[2]
        return end
