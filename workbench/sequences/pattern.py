"""The host's knowledge of the visibility of rows, so that a kernel can be chosen without waiting for the device.

The visibility integers (`workbench.models.attention.visibility`) are read where they are written, in numpy in the
loader's workers. A `Pattern` sums up those of one stream, or of several joined. Where it is incomplete, its users take
the general path.

A pattern must never outlive its integers. `KnownPattern` therefore stores it with the very tensors it was read from.
Other tensors in their place, tensors that were written to, other lengths or another set of integers invalidate it.
(Tensors from `torch.inference_mode` don't count writes; there only the tensor is compared.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

VISIBILITY = ("doc", "rank", "until", "branch", "anchor", "everywhere")
"""The integers of the visibility; another one that isn't 0 everywhere makes a pattern unknown."""


@dataclass(frozen=True)
class Pattern:
    """The visibility among the rows of a stream, as far as it is simple.

    Attributes:
        documents: rows of each document, by sequence, where the rows of each are consecutive.
        full: whether the ranks let each row see all rows of its document.
        causal: whether they let it see those up to itself, and no later one.
        doc: the number of the one document of all rows; None where there are several.
        ranks: the lowest and the highest rank; None without rows.
        until, branches: whether a row hides from others by these integers, or may do so.
        everywhere: whether some row is exempt from a window.
    """

    documents: list[list[int]] | None
    full: bool
    causal: bool
    doc: int | None = 0
    ranks: tuple[int, int] | None = (0, 0)
    until: bool = False
    branches: bool = False
    everywhere: bool = False

    def picked(self, sequences: Sequence[int]) -> Pattern:
        """The pattern of these sequences, in this order."""
        documents = self.documents and [self.documents[number] for number in sequences]
        return replace(self, documents=documents)


def plain(lengths: Sequence[int]) -> Pattern:
    """The pattern of rows without visibility integers: all rows of a sequence see each other."""
    return Pattern([[n] if n else [] for n in lengths], True, all(n <= 1 for n in lengths), 0, (0, 0))


def pattern_of(lengths: Sequence[int], integers: Mapping[str, np.ndarray]) -> Pattern | None:
    """The pattern of a stream's integers, each [rows]; None where it has unknown ones."""
    if any(integers[name].any() for name in integers.keys() - set(VISIBILITY)):
        return None
    rows = sum(lengths)
    if not rows:
        return replace(plain(lengths), ranks=None)
    none = np.zeros(rows, np.int64)
    doc, rank = integers.get("doc", none), integers.get("rank", none)
    ends = np.cumsum(lengths)
    begins = np.zeros(rows, np.bool_)
    begins[(ends - lengths)[np.asarray(lengths) > 0]] = True
    begins[1:] |= doc[1:] != doc[:-1]
    inside = ~begins[1:]
    return Pattern(
        documents=_documents(doc, begins, ends),
        full=not (inside & (rank[1:] != rank[:-1])).any(),
        causal=not (inside & (rank[1:] <= rank[:-1])).any(),
        doc=int(doc[0]) if (doc == doc[0]).all() else None,
        ranks=(int(rank.min()), int(rank.max())),
        until=_any(integers, "until"),
        branches=_any(integers, "branch"),
        everywhere=_any(integers, "everywhere"),
    )


def _any(integers: Mapping[str, np.ndarray], name: str) -> bool:
    return name in integers and bool(integers[name].any())


def _documents(doc: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> list[list[int]] | None:
    """Rows of each document, by sequence; None where a document continues behind another one."""
    first = np.flatnonzero(begins)
    sizes = np.diff(first, append=len(doc)).tolist()
    sequences = np.searchsorted(ends, first, side="right")
    documents: list[list[int]] = [[] for _ in ends]
    numbers = set(zip(sequences.tolist(), doc[first].tolist(), strict=True))
    if len(numbers) < len(first):
        return None
    for sequence, size in zip(sequences.tolist(), sizes, strict=True):
        documents[sequence].append(size)
    return documents


def joined(patterns: Sequence[Pattern | None], lengths: Sequence[Sequence[int]]) -> Pattern | None:
    """The pattern of streams as one, sequence by sequence; `lengths` are those of each.

    Streams without rows are ignored. Rows of several streams are known to see each other where all are of one document
    and one rank, and not to do so where each stream is a document of its own.
    """
    there = [(pattern, own) for pattern, own in zip(patterns, lengths, strict=True) if any(own)]
    if len(there) == 1:
        return there[0][0]
    found = [pattern for pattern, _ in there if pattern is not None]
    total = [sum(parts) for parts in zip(*lengths, strict=True)]
    if len(found) < len(there):
        return None
    if not found:
        return replace(plain(total), ranks=None)
    docs = {pattern.doc for pattern in found}
    ranks = [pattern.ranks for pattern in found if pattern.ranks is not None]
    low, high = min(r[0] for r in ranks), max(r[1] for r in ranks)
    apart = len(docs) == len(found) and len(docs) > 1 and None not in docs
    doc = docs.pop() if len(docs) == 1 else None
    documents = [[n] if n else [] for n in total] if doc is not None else None
    return Pattern(
        documents=[[n for n in parts if n] for parts in zip(*lengths, strict=True)] if apart else documents,
        full=all(pattern.full for pattern in found) if apart else low == high,
        causal=apart and all(pattern.causal for pattern in found),
        doc=doc,
        ranks=(low, high),
        until=any(pattern.until for pattern in found),
        branches=any(pattern.branches for pattern in found),
        everywhere=any(pattern.everywhere for pattern in found),
    )


def all_see_all(queries: Pattern, keys: Pattern) -> bool:
    """Whether each row of the queries sees all keys of its sequence."""
    if queries.ranks is None or keys.ranks is None:
        return True
    return (
        queries.doc is not None
        and queries.doc == keys.doc
        and keys.ranks[1] <= queries.ranks[0]
        and not (keys.until or queries.branches or keys.branches)
    )


class KnownPattern:
    """A pattern with the integers that it was read from.

    Args:
        pattern: None: unknown.
        integers: the tensors of the stream.
        lengths: rows of each sequence.
    """

    def __init__(self, pattern: Pattern | None, integers: dict[str, Tensor], lengths: list[int]) -> None:
        self.pattern, self.integers, self.lengths = pattern, integers, lengths
        self._versions = {name: _version(values) for name, values in integers.items()}

    def of(self, integers: Mapping[str, Tensor], lengths: list[int]) -> Pattern | None:
        """The pattern, where these are the integers and lengths that it was read from."""
        same = (
            self.lengths == lengths
            and self.integers.keys() == integers.keys()
            and all(integers[name] is values for name, values in self.integers.items())
        )
        return self.pattern if same and self._unwritten() else None

    def _unwritten(self) -> bool:
        return all(_version(values) == self._versions[name] for name, values in self.integers.items())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the counts of writes: they begin anew in unpickled tensors."""
        return KnownPattern, (self.pattern if self._unwritten() else None, self.integers, self.lengths)


def _version(values: Tensor) -> int:
    return -1 if values.is_inference() else values._version
