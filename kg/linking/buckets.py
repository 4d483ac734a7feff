"""Numbers by the hashes of what they stand for, in two arrays that can be mapped from disk."""

from __future__ import annotations

import numpy as np


class HashBuckets:
    """The numbers whose hash has the same upper bits, one or two of them in most buckets.

    Args:
        first: where each bucket begins in `order`, [buckets + 1].
        order: the numbers, bucket by bucket.
        width: bits of a hash.
    """

    def __init__(self, first: np.ndarray, order: np.ndarray, width: int) -> None:
        self._first, self._order = first.data, order.data
        self._shift = width - (len(first) - 1).bit_length() + 1

    def of(self, hashed: int) -> list[int]:
        """The numbers that may have this hash; whoever asks compares what they stand for."""
        bucket = hashed >> self._shift
        return self._order[self._first[bucket] : self._first[bucket + 1]].tolist()


def hash_buckets(hashes: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The arrays of `HashBuckets` for the hashes of 0, 1, 2 ...: int32, in the order of the numbers within a bucket."""
    bits = max(1, len(hashes).bit_length())
    places = (hashes >> np.uint64(width - bits)).astype(np.int64)
    first = np.zeros((1 << bits) + 1, np.int32)
    np.cumsum(np.bincount(places, minlength=1 << bits), out=first[1:])
    return first, np.argsort(places, kind="stable").astype(np.int32)
