"""Words in a table of hashes that can be mapped from disk: where one of many patterns begins in a text.

The table knows each beginning of a pattern that ends at the end of a word: "new", "new york". From each word of a text
on it is asked whether that is a pattern and whether one goes on, for all words at once. So nothing has to be built
when a dictionary is opened, and all processes that read it share its memory.

The hash of a stretch is sum(letter[c_i] * BASE^i) mod 2^64, i from the stretch's begin on: differences of running sums
give those of all stretches (Karp and Rabin, "Efficient randomized pattern-matching algorithms", 1987). What hashes
propose is compared with the patterns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise

import numpy as np

from kg.linking.buckets import Buckets, buckets
from kg.linking.codes import BLANK
from kg.linking.names import Found

PREFIX_ARRAYS = ("patterns", "offsets", "leads", "flags", "first", "order")
_IS, _GOES_ON = 1, 2
_ROOM = 8
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
    """Patterns of codes: a blank or several, and words with blanks between them."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        """From arrays (`prefixes` makes them)."""
        self.arrays = arrays
        self._patterns, self._offsets = arrays["patterns"].data, arrays["offsets"].data
        self._leads, self._flags = arrays["leads"].data, arrays["flags"]
        self._shift = np.uint64(65 - len(self._flags).bit_length())
        self._buckets = Buckets(arrays["first"], arrays["order"], 64)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __iter__(self) -> Iterator[bytes]:
        blob, offsets = self._patterns.tobytes(), self._offsets.tolist()
        return (blob[start:end] for start, end in pairwise(offsets))

    def find(self, codes: bytes) -> list[Found]:
        """(number of the pattern, start, end) in codes that begin and end with a blank, without overlap.

        From the left: the patterns that begin first, and of these the longest that ends where a word does.
        """
        edges, sums = _words(codes)
        candidates = self._candidates(edges[::2], sums[::2], sums[1::2])
        found: list[Found] = []
        end, places = 0, edges.data
        for word in sorted(candidates):
            if word < end:
                continue
            best: tuple[int, int, int, int] | None = None
            start = places[2 * word]
            for more, hashed in candidates[word]:
                after = places[2 * (word + more) + 1] + 1
                for number in self._buckets.of(hashed):
                    begin = start - self._leads[number]
                    # the first to begin, then the longest
                    if (best is None or (begin, -after) < best[:2]) and self._is(number, codes, begin, after):
                        best = begin, -after, number, word + more + 1
            if best is not None:
                found.append((best[2], best[0], -best[1]))
                end = best[3]
        return found

    def _is(self, number: int, codes: bytes, begin: int, after: int) -> bool:
        first, last = self._offsets[number], self._offsets[number + 1]
        return last - first == after - begin and bytes(self._patterns[first:last]) == codes[begin:after]

    def _candidates(self, starts: np.ndarray, front: np.ndarray, back: np.ndarray) -> dict[int, list[tuple[int, int]]]:
        """By the words at which patterns may begin: how many more words these have, and their hashes."""
        candidates: dict[int, list[tuple[int, int]]] = {}
        inverse, words, more = _POWERS.down.take(starts), np.arange(len(starts)), 0
        hashes = (back - front) * inverse
        while len(words):
            flags = self._flags.take(hashes >> self._shift)
            met = (flags & _IS).nonzero()[0]
            if len(met):
                for word, hashed in zip(words.take(met).tolist(), hashes.take(met).tolist(), strict=True):
                    candidates.setdefault(word, []).append((more, hashed))
            more += 1
            words = words[flags >= _GOES_ON]
            words = words[: words.searchsorted(len(starts) - more)]
            hashes = (back.take(words + more) - front.take(words)) * inverse.take(words)
        return candidates


def prefixes(patterns: Sequence[bytes]) -> dict[str, np.ndarray]:
    """The arrays of a table: the patterns, each with a blank or several in front, none twice.

    `patterns` uint8 has them one behind the other, `offsets` [patterns + 1] int64 where each begins; `leads` [patterns]
    int32 how many blanks each has in front of that before its first word; `flags` uint8 what the upper bits of a hash
    may stand for; `first` and `order` the patterns by their hashes.
    """
    parts = [_hashes(patterns[first : first + _MANY]) for first in range(0, len(patterns), _MANY)]
    whole = np.concatenate([part[0] for part in parts] or [np.empty(0, np.uint64)])
    begun = np.unique(np.concatenate([part[1] for part in parts] or [whole]))
    bits = max(8, (_ROOM * (len(whole) + len(begun))).bit_length())
    flags = np.zeros(1 << bits, np.uint8)
    shift = np.uint64(64 - bits)
    flags[(begun >> shift).astype(np.int64)] = _GOES_ON
    flags[(whole >> shift).astype(np.int64)] |= _IS
    first, order = buckets(whole, 64)
    return {
        "patterns": np.frombuffer(b"".join(patterns), np.uint8),
        "offsets": np.fromiter(chain((0,), map(len, patterns)), np.int64, len(patterns) + 1).cumsum(),
        "leads": np.fromiter((len(p) - len(p.lstrip(b" ")) - 1 for p in patterns), np.int32, len(patterns)),
        "flags": flags,
        "first": first,
        "order": order,
    }


def _hashes(patterns: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """The hashes of the patterns, from the last of the blanks in front, and of their beginnings, each once."""
    edges, sums = _words(b"".join(patterns) + b" ")
    starts, front, back = edges[::2], sums[::2], sums[1::2]
    offsets = np.fromiter(chain((0,), map(len, patterns)), np.int64, len(patterns) + 1).cumsum()
    words = starts.searchsorted(offsets)  # the first word of each
    of = np.repeat(words[:-1], np.diff(words))
    hashes = (back - front.take(of)) * _POWERS.down.take(starts.take(of))
    last = np.zeros(len(starts), bool)
    last[words[1:] - 1] = True
    return hashes[last], np.unique(hashes[~last])
