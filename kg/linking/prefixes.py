"""Words in a table of hashes that can be mapped from disk: where one of many patterns begins in a text.

The table knows each beginning of a pattern that ends at the end of a word: "new", "new york". From each word of a text
on it is asked whether that is a pattern and whether one continues, for all words at once. So nothing has to be built
when a dictionary is opened, and all processes that read it share its memory.

The hash of a stretch is sum(letter[c_i] * BASE^i) mod 2^64, i from the stretch's begin on: differences of running sums
give those of all stretches (Karp and Rabin, "Efficient randomized pattern-matching algorithms", 1987). What hashes
propose is compared with the patterns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise, repeat

import numpy as np

from kg.linking.buckets import HashBuckets, hash_buckets
from kg.linking.codes import BLANK
from kg.linking.names import Found

PREFIX_ARRAYS = ("patterns", "offsets", "flags", "first", "order")
_IS, _GOES_ON = 1, 2
_ROOM = 16
"""At least so many flags for each beginning, so that few are met by chance."""
_MANY = 1 << 16
"""Patterns that are hashed at a time when a table is built."""
_BASE = 0x9E3779B97F4A7C15
_WRAP = (1 << 64) - 1


def _letters() -> np.ndarray:
    """A 64-bit number for each code (the finalizer of MurmurHash3, of their multiples of the base), uint64 [256]."""
    numbers = np.arange(1, 257, dtype=np.uint64) * np.uint64(_BASE)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        numbers = (numbers ^ (numbers >> np.uint64(33))) * np.uint64(factor)
    return np.asarray(numbers ^ (numbers >> np.uint64(33)))


class _Powers:
    """Powers of the base and of its inverse, as many as a text has characters."""

    def __init__(self) -> None:
        self.up = self.down = np.ones(0, np.uint64)

    def reach(self, length: int) -> None:
        if length > len(self.up):
            length = max(length, 2 * len(self.up), 1 << 12)
            for name, base in (("up", _BASE), ("down", pow(_BASE, -1, 1 << 64))):
                powers = np.full(length, base & _WRAP, np.uint64)
                powers[0] = 1
                setattr(self, name, powers.cumprod(dtype=np.uint64))


_LETTERS, _POWERS = _letters(), _Powers()


def _words(codes: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Where the words of codes that begin and end with a blank are, and the running sums of the hash there.

    Both have for each word the blank in front of it and its last letter, int64 and uint64 [2 words].
    """
    letters = np.frombuffer(codes, np.uint8)
    blank = letters == BLANK
    edges = (blank[1:] != blank[:-1]).nonzero()[0]
    _POWERS.reach(len(letters))
    sums = _LETTERS.take(letters)
    sums *= _POWERS.up[: len(sums)]
    sums.cumsum(out=sums)
    return edges, sums.take(edges)


class Prefixes:
    """Patterns of codes: a blank and words, with blanks between them."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        """From arrays (`prefixes` makes them)."""
        self.arrays = arrays
        self._patterns, self._offsets = arrays["patterns"].data, arrays["offsets"].data
        self._flags = arrays["flags"]
        self._shift = np.uint64(65 - len(self._flags).bit_length())
        self._buckets = HashBuckets(arrays["first"], arrays["order"], 64)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __iter__(self) -> Iterator[bytes]:
        blob, offsets = self._patterns.tobytes(), self._offsets.tolist()
        return (blob[start:end] for start, end in pairwise(offsets))

    def find(self, codes: bytes) -> list[Found]:
        """(number of the pattern, start, end) in codes that begin and end with a blank, without overlap.

        From each word on, from the left: the longest pattern that ends where a word does.
        """
        edges, sums = _words(codes)
        found: list[Found] = []
        end, places, of = 0, edges.data, self._buckets.of
        patterns, offsets = self._patterns, self._offsets
        for word, fewer, hashed in self._candidates(edges[::2], sums[::2], sums[1::2]):
            if word >= end:
                start, after = places[2 * word], places[2 * (word - fewer) + 1] + 1
                spelt = codes[start:after]
                for number in of(hashed):
                    if patterns[offsets[number] : offsets[number + 1]] == spelt:
                        found.append((number, start, after))
                        end = word - fewer + 1
                        break
        return found

    def _candidates(self, starts: np.ndarray, front: np.ndarray, back: np.ndarray) -> list[tuple[int, int, int]]:
        """(word, how many words fewer than that alone, hash) of what may be a pattern, sorted."""
        candidates: list[tuple[int, int, int]] = []
        inverse, words, fewer = _POWERS.down.take(starts), np.arange(len(starts)), 0
        hashes = (back - front) * inverse
        while len(words):
            flags = self._flags.take(hashes >> self._shift)
            met = (flags & _IS).nonzero()[0]
            if len(met):
                candidates += zip(words.take(met).tolist(), repeat(fewer), hashes.take(met).tolist(), strict=False)
            fewer -= 1
            words = words[flags >= _GOES_ON]
            words = words[: words.searchsorted(len(starts) + fewer)]
            hashes = (back.take(words - fewer) - front.take(words)) * inverse.take(words)
        candidates.sort()
        return candidates


def prefixes(patterns: Sequence[bytes]) -> dict[str, np.ndarray]:
    """The arrays of a table: of patterns as `Prefixes` has them, none twice.

    `patterns` uint8 has them one behind the other, `offsets` [patterns + 1] int64 where each begins; `flags` uint8 what
    the upper bits of a hash may stand for; `first` and `order` the patterns by their hashes.
    """
    parts = [_hashes(patterns[first : first + _MANY]) for first in range(0, len(patterns), _MANY)]
    whole = np.concatenate([part[0] for part in parts] or [np.empty(0, np.uint64)])
    begun = np.unique(np.concatenate([part[1] for part in parts] or [whole]))
    bits = max(8, (_ROOM * (len(whole) + len(begun))).bit_length())
    flags = np.zeros(1 << bits, np.uint8)
    shift = np.uint64(64 - bits)
    flags[(begun >> shift).astype(np.int64)] = _GOES_ON
    flags[(whole >> shift).astype(np.int64)] |= _IS
    first, order = hash_buckets(whole, 64)
    return {
        "patterns": np.frombuffer(b"".join(patterns), np.uint8),
        "offsets": np.fromiter(chain((0,), map(len, patterns)), np.int64, len(patterns) + 1).cumsum(),
        "flags": flags,
        "first": first,
        "order": order,
    }


def _hashes(patterns: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """The hashes of the patterns, and those of their beginnings, each once."""
    edges, sums = _words(b"".join(patterns) + b" ")
    starts, front, back = edges[::2], sums[::2], sums[1::2]
    offsets = np.fromiter(chain((0,), map(len, patterns)), np.int64, len(patterns) + 1).cumsum()
    words = starts.searchsorted(offsets)  # the first word of each
    of = np.repeat(words[:-1], np.diff(words))
    hashes = (back - front.take(of)) * _POWERS.down.take(starts.take(of))
    last = np.zeros(len(starts), bool)
    last[words[1:] - 1] = True
    return hashes[last], np.unique(hashes[~last])
