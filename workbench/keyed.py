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
        duplicates: after so many epochs a sample's generator is that of the first one again; None: never. The draw of a
            sample is then (corpus, epoch, ...), the rest of which is the same in every epoch.
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
