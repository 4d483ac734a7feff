"""Texts among a batch's arrays: their characters as numbers, for what an objective measures of texts.

What a held-out pass gathers are tensors; an answer or a continuation travels as its code points.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

import numpy as np
from torch import Tensor


def code_points(text: str) -> np.ndarray:
    """[characters] int32."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.int32).copy()


def texts_of(points: Tensor, lengths: Iterable[int]) -> list[str]:
    """The texts that lie one after the other in `points`, of so many characters each."""
    whole = "".join(map(chr, points.tolist()))
    sizes = list(lengths)
    return [whole[end - size : end] for end, size in zip(accumulate(sizes), sizes, strict=True)]
