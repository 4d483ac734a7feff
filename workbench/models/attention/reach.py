"""The visibility between two layouts where it is simple, as numbers on the host, on which fast kernels depend.

Flash attention supports stretches of rows, reading from left to right, and a window. `reach` returns the stretches that
describe the predicate (`workbench.models.attention.visibility`) exactly, or the reason why none do. It uses the pattern
that the loader has read from the integers (`workbench.sequences.pattern`) and never reads them itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.models.attention.request import Request
from workbench.models.layout import Layout
from workbench.sequences.pattern import Pattern, all_see_all


@dataclass(frozen=True)
class Reach:
    """Rows of `queries[i]` see those of `keys[i]` and no others, in the order in which sequences are contiguous.

    Attributes:
        queries, keys: rows of each stretch; none has neither.
        causal: whether a row sees those of its stretch up to itself alone; the stretches of both sides are the same.
        window: the greatest distance of a visible row; the stretches of both sides are the same where there is one.
    """

    queries: list[int]
    keys: list[int]
    causal: bool
    window: int | None


def reach(request: Request) -> Reach | str:
    """The reach of a request; where there is none, the reason in words."""
    queries, keys, window = request.queries, request.keys, request.window
    return queries.kept(keys, ("reach", window), lambda: _reach(queries, keys, window))


def _reach(queries: Layout, keys: Layout, window: int | None) -> Reach | str:
    own, other = queries.pattern, keys.pattern
    if own is None or other is None:
        return "visibility that was set or changed on the device, or that is not of a known kind"
    same = queries is keys
    if window is not None and not (same and queries.places is None):
        return "a window between rows that are counted apart"
    if window is not None and own.everywhere:
        return "rows that are exempt from a window (everywhere)"
    if same and not (own.until or own.branches) and own.documents is not None and (own.full or own.causal):
        stretches = [rows for documents in own.documents for rows in documents if rows]
        return Reach(stretches, stretches, not own.full, window)
    if window is None and all_see_all(own, other):
        pairs = [pair for pair in zip(queries.lengths, keys.lengths, strict=True) if any(pair)]
        return Reach([q for q, _ in pairs], [k for _, k in pairs], False, None)
    return _complexity(own, same)


def _complexity(own: Pattern, same: bool) -> str:
    """The reason why the visibility of rows, among themselves or with others, is not simple."""
    if not same:
        return "one set of rows that sees another in part"
    if own.branches:
        return "a tree of visibility (branch)"
    if own.until:
        return "rows that hide from others (until)"
    if own.documents is None:
        return "documents in several pieces"
    return "ranks that neither are equal nor rise with every row (a prefix, a permutation, from right to left)"
