"""Random generators that depend on a key alone, so that no result depends on workers, ranks or restarts."""

from __future__ import annotations

import hashlib
from functools import cached_property

import numpy as np

Key = int | str
Draw = tuple[int, ...]


def digest(*key: Key) -> int:
    """A 128-bit number that depends on every part of the key, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=16).digest(), "little")


def generator(*key: Key) -> np.random.Generator:
    """A fresh generator for this key (Philox; equal keys give equal streams)."""
    return np.random.Generator(np.random.Philox(key=digest(*key)))


class Draws:
    """The generators of one hook on one micro-batch.

    `of(draw)` belongs to one sample wherever it is read; `batch` belongs to the micro-batch, for what looks
    across its samples.

    Attributes:
        progress: of the run: 0 at its start, 1 at its end and in evaluation.
    """

    def __init__(self, *key: Key, number: Draw, progress: float = 1.0) -> None:
        self.key = key
        self.number = number
        self.progress = progress

    @cached_property
    def batch(self) -> np.random.Generator:
        return generator(*self.key, "micro-batch", *self.number)

    def of(self, draw: Draw) -> np.random.Generator:
        return generator(*self.key, "sample", *draw)
