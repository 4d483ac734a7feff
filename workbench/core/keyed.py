"""Random generators that depend on a key alone, so that no result depends on workers, ranks or restarts.

The key of a sample is (seed, task, objective, draw), that of a micro-batch (seed, task, objective, number). Hooks,
builders and transforms get them as `draws`, with the progress of the run: `draws.progress` is 0 at its start and 1 at
its end, in held-out passes and in evaluation. The device generators are seeded from (seed, step, lane) before each
micro-batch.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence as Listing
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

Key = int | str
Draw = tuple[int, ...]

DRAWS = 2
"""The number of the way in which hooks draw: a run draws in one way. In way 1 masked tokens had a generator for each
sample, since then `Numbers`."""


def _hashed(*key: Key) -> bytes:
    return hashlib.blake2b(repr(key).encode(), digest_size=16).digest()


def digest(*key: Key) -> int:
    """A 128-bit number that depends on every element of the key, the same on every machine."""
    return int.from_bytes(_hashed(*key), "little")


class _PhiloxKey(ISeedSequence):
    """A key of Philox as a seed: for the argument `key` numpy first gathers the system's entropy, and drops it."""

    def __init__(self, hashed: bytes) -> None:
        self.words = np.frombuffer(hashed, "<u8")

    def generate_state(self, n_words: int, dtype: object = None) -> np.ndarray:
        return self.words


def generator(*key: Key) -> np.random.Generator:
    """A fresh generator for this key (Philox; equal keys give equal streams)."""
    seed: Any = _PhiloxKey(_hashed(*key))  # numpy's annotations leave out seed sequences of other classes
    return np.random.Generator(np.random.Philox(seed))


def normals(rows: np.ndarray, size: int, *key: Key) -> np.ndarray:
    """Standard normal numbers [rows, size], float32. The numbers of a row depend on its index and the key alone.

    This makes many small draws at once: a counter for each number is mixed as by SplitMix64 (Steele et al., OOPSLA
    2014, doi:10.1145/2660193.2660195), and two mixed numbers become one normal number (Box and Muller 1958).
    """
    counters = (rows.astype(np.uint64)[:, None] * np.uint64(size) + np.arange(size, dtype=np.uint64)) * np.uint64(2)
    start = np.uint64(digest(*key) % 2**64)
    radius, angle = (_uniform(start + counters + np.uint64(i)) for i in range(2))
    return (np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle)).astype(np.float32)


def _uniform(counters: np.ndarray) -> np.ndarray:
    """Numbers in (0, 1] for 64-bit counters."""
    return ((_mixed(counters) >> np.uint64(11)) + np.uint64(1)) * 2.0**-53


def _mixed(counters: np.ndarray) -> np.ndarray:
    mixed = counters * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


ROUNDS = 8


def shuffled_places(places: np.ndarray, size: int, *key: Key) -> np.ndarray:
    """The places [elements], int64, to which a shuffle of `size` elements moves these; no other place is computed.

    This is a bijection that depends on the key alone: a Feistel network on the two digits of a place, and a place
    beyond the size is moved again (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002). There are
    at most about 2 sqrt(size) places beyond.
    """
    low_digits = math.isqrt(max(size - 1, 0)) + 1
    high_digits = -(-size // low_digits)
    keys = [np.uint64(digest(*key, number) % 2**64) for number in range(ROUNDS)]
    found = places.astype(np.uint64)
    beyond = np.ones(len(found), np.bool_)
    while beyond.any():
        high, low = np.divmod(found[beyond], np.uint64(low_digits))
        for one, other in zip(keys[::2], keys[1::2], strict=True):
            high = (high + _mixed(low + one) % np.uint64(high_digits)) % np.uint64(high_digits)
            low = (low + _mixed(high + other) % np.uint64(low_digits)) % np.uint64(low_digits)
        found[beyond] = high * np.uint64(low_digits) + low
        beyond = found >= np.uint64(size)
    return found.astype(np.int64)


class Numbers:
    """Random numbers of many samples at once. Those of a sample depend on its key alone, not on the other samples.

    They are counters that are mixed as by SplitMix64 (`normals`).

    Args:
        keys: [samples] uint64.
    """

    def __init__(self, keys: np.ndarray) -> None:
        self.keys = keys

    @classmethod
    def of(cls, rng: np.random.Generator) -> Numbers:
        """Those of one sample, whose key a generator draws."""
        return cls(rng.integers(2**64, size=1, dtype=np.uint64))

    def random(self, counts: np.ndarray | None = None) -> np.ndarray:
        """The next `counts` [samples] numbers of each sample, from [0, 1), sample after sample; by default one of
        each."""
        counts = np.ones(len(self.keys), np.int64) if counts is None else counts
        ends = np.cumsum(counts)
        places = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)
        mixed = _mixed(np.repeat(self.keys, counts) + places.astype(np.uint64))
        self.keys = self.keys + counts.astype(np.uint64)
        return (mixed >> np.uint64(11)) * 2.0**-53

    def integers(self, below: int | np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
        """Whole numbers from 0 to `below` (one bound, or one for each number), as `random` draws them."""
        return (self.random(counts) * below).astype(np.int64)


class Draws:
    """The generators of one hook on one micro-batch.

    `of(draw)` belongs to one sample wherever it is read; `numbers(draws)` are of many samples, each with its own.
    `batch` belongs to the micro-batch, for draws that concern several samples.

    Attributes:
        progress: the progress of the run: 0 at its start, 1 at its end and in evaluation.
        duplicates: the number of epochs after which a sample's generators repeat; None: never. The draw of a sample is
            then (corpus, epoch, ...), and its other elements are the same in every epoch.
    """

    def __init__(self, *key: Key, number: Draw, progress: float = 1.0, duplicates: int | None = None) -> None:
        self.key = key
        self.number = number
        self.progress = progress
        self.duplicates = duplicates

    @cached_property
    def batch(self) -> np.random.Generator:
        return generator(*self.key, "micro-batch", *self.number)

    def of(self, draw: Draw) -> np.random.Generator:
        if self.duplicates is not None:
            draw = (*draw[:1], *(epoch % self.duplicates for epoch in draw[1:2]), *draw[2:])
        return generator(*self.key, "sample", *draw)

    def numbers(self, draws: Listing[Draw]) -> Numbers:
        """The numbers of these samples, which cost less than a generator of each."""
        keys = np.full(len(draws), digest(*self.key, "samples") % 2**64, np.uint64)
        sizes = np.array([len(draw) for draw in draws], np.int64)
        for place, elements in enumerate(zip_longest(*draws, fillvalue=0)):
            values = np.array(elements, np.int64)
            if place == 1 and self.duplicates is not None:
                values %= self.duplicates
            mixed = _mixed(keys ^ _mixed(values.astype(np.uint64) + np.uint64(1)))
            keys = np.where(sizes > place, mixed, keys)
        return Numbers(keys)
