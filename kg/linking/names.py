"""Names by their spelling, and the longest one at a place: what both ways of finding them fall back on."""

from __future__ import annotations

import zlib
from collections.abc import Container, Mapping, Sequence

import numpy as np

from kg.linking.boundaries import boundary, joins
from kg.linking.buckets import HashBuckets, hash_buckets

Found = tuple[int, int, int]
"""The number of a name, and where it begins and ends."""
PREFIX = 6


NAME_ARRAYS = ("first", "order", "lengths_first", "lengths", "short")
_LENGTH = 32
"""Bits of a length, below the hash of the first characters of names that have it."""


class NameIndex:
    """An index of names, none empty and none twice; some 25 bytes a name. Both may lie on disk."""

    def __init__(self, names: Sequence[str], arrays: Mapping[str, np.ndarray] | None = None) -> None:
        """From names, whose arrays exist already (`name_arrays`) or are computed now."""
        self.names = names
        self.arrays = arrays = name_arrays(names) if arrays is None else arrays
        self._numbers = HashBuckets(arrays["first"], arrays["order"], 32)
        self._lengths_first, self._lengths = arrays["lengths_first"].data, arrays["lengths"].data
        self._lengths_shift = 33 - (len(self._lengths_first) - 1).bit_length()
        *short, self.longest = arrays["short"].tolist()
        self._short = tuple(short)

    def number(self, folded: str) -> int:
        """The number of a folded name, -1 where there is none."""
        for number in self._numbers.of(_hash(folded)):
            if self.names[number] == folded:
                return number
        return -1

    def _lengths_of(self, prefix: str) -> list[int]:
        """The lengths of names that begin so, and perhaps of others, the longest first."""
        hashed = _hash(prefix)
        bucket = hashed >> self._lengths_shift
        rows = self._lengths[self._lengths_first[bucket] : self._lengths_first[bucket + 1]].tolist()
        return [row & ((1 << _LENGTH) - 1) for row in reversed(rows) if row >> _LENGTH == hashed]

    def longest_at(self, folded: str, start: int, inner: Container[int] = ()) -> Found | None:
        """The longest name at a boundary that ends at one; places that are `inner` are none."""
        if joins(folded, start):
            number = self.number(folded[start]) if start + 1 not in inner else -1
            return (number, start, start + 1) if number >= 0 else None
        lengths = self._lengths_of(folded[start : start + PREFIX])
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


def name_arrays(names: Sequence[str]) -> dict[str, np.ndarray]:
    """The arrays of an index.

    `first` and `order` are the names by their hashes; `lengths` uint64 the lengths of names by the hash of their first
    `PREFIX` characters, sorted, `lengths_first` where each bucket of them begins; `short` those of the shorter names,
    and the length of the longest.
    """
    first, order = hash_buckets(np.fromiter(map(_hash, names), np.uint64, len(names)), 32)
    long = [(_hash(name[:PREFIX]) << _LENGTH) + len(name) for name in names if len(name) >= PREFIX]
    lengths = np.unique(np.array(long, np.uint64))
    lengths_first, _ = hash_buckets(lengths >> np.uint64(_LENGTH), 32)  # which are sorted
    short = sorted({len(name) for name in names if len(name) < PREFIX}, reverse=True)
    longest = np.array([*short, max(map(len, names), default=0)], np.int64)
    return {"first": first, "order": order, "lengths_first": lengths_first, "lengths": lengths, "short": longest}


def _hash(text: str) -> int:
    """32 bits that are the same in every process."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))
