"""Cut points of a text, and its windows of a given width.

A cut point is strong (after a sentence or a paragraph) or weak (after white space, or between two characters if there
is none within reach). No cut point lies inside a mention. Positions are in characters; a stored cut point is `2 *
position + strong`, so that one sorted array holds both.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

REACH = 64
"""The maximal distance in characters between cut points, except inside mentions."""

_ABBREVIATION = r"(?<!\bMr)(?<!\bMs)(?<!\bDr)(?<!\bSt)(?<!\bMrs)(?<!\bvs)(?<!\b[A-Z])"
# a row of signs is bounded, and no space begins a match: otherwise the time is quadratic in the length of such a row
_STRONG = re.compile(
    rf"""(?=[.!?…]){_ABBREVIATION}[.!?…]{{1,64}}["'”’»)\]]*\s+|[。！？；…]+[”’」』）]*\s*|\n\s*\n\s*"""
)
_SPACE = re.compile(r"\s+")

Mention = Sequence[int | str | float]


def cut_points(text: str, spans: Iterable[Mention] = ()) -> list[int]:
    """The stored cut points of a text, ascending, without the ends of the text.

    `spans` start with (start, end) in characters, half-open.
    """
    closed = _merged(spans)
    strong = _outside([m.end() for m in _STRONG.finditer(text) if 0 < m.end() < len(text)], closed)
    walls = [0, *strong, len(text)]
    weak: list[int] = []
    if any(b - a > REACH for a, b in pairwise(walls)):
        spaces = _outside([m.end() for m in _SPACE.finditer(text)], closed)
        for a, b in pairwise(walls):
            weak.extend(_weak(text, a, b, spaces, closed))
    return sorted([2 * p for p in weak] + [2 * p + 1 for p in strong])


def _merged(spans: Iterable[Mention]) -> list[tuple[int, int]]:
    """Disjoint intervals, ascending, that cover the mentions."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted((int(s[0]), int(s[1])) for s in spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _outside(positions: list[int], closed: list[tuple[int, int]]) -> list[int]:
    if not closed or not positions:
        return positions
    points = np.array(positions)
    which = np.searchsorted([start for start, _ in closed], points, side="left") - 1
    ends = np.array([end for _, end in closed])
    inside = (which >= 0) & (points < ends[which])
    return points[~inside].tolist()


def _weak(text: str, a: int, b: int, spaces: list[int], closed: list[tuple[int, int]]) -> list[int]:
    found = []
    while b - a > REACH:
        last = bisect_right(spaces, a + REACH) - 1
        point = spaces[last] if last >= 0 and spaces[last] > a else _hard(text, a, closed)
        if point >= b:
            break
        found.append(point)
        a = point
    return found


def _hard(text: str, a: int, closed: list[tuple[int, int]]) -> int:
    """A point near a + REACH between two characters: before a mention that covers it, or else after the mention."""
    point = a + REACH
    while point > a + 1 and unicodedata.combining(text[point]):
        point -= 1
    before = bisect_right(closed, (point, -1)) - 1
    if before >= 0 and closed[before][0] < point < closed[before][1]:
        start, end = closed[before]
        return start if start > a else end
    return point


def windows(lengths: np.ndarray, cut_starts: np.ndarray, cuts: np.ndarray, width: int) -> tuple[np.ndarray, ...]:
    """The windows of every record of a shard: arrays record, start, end [windows], in order.

    A record's windows cover its text exactly, one after the other. A window ends at the last strong cut point within
    `width` characters if that point is in its second half, else at the last cut point. It is wider than `width` only if
    no cut point is in reach (a mention wider than the window).

    Args:
        lengths: [records] characters.
        cut_starts: [records + 1] the beginnings of each record's points in `cuts`.
        cuts: stored cut points of all records.
        width: the width in characters, at least 1.
    """
    lengths = np.asarray(lengths, np.int64)
    long = np.flatnonzero(lengths > width)
    if not len(long):
        return np.arange(len(lengths)), np.zeros_like(lengths), lengths
    records, starts, ends = _long_windows(long, lengths, np.asarray(cut_starts), np.asarray(cuts), width)
    short = np.flatnonzero(lengths <= width)
    order = np.argsort(np.concatenate([short, records]), kind="stable")
    return (
        np.concatenate([short, records])[order],
        np.concatenate([np.zeros_like(short), starts])[order],
        np.concatenate([lengths[short], ends])[order],
    )


def _long_windows(
    long: np.ndarray, lengths: np.ndarray, cut_starts: np.ndarray, cuts: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Windows of the records `long`, concatenated: the end of the window from every point, then one walk."""
    ends = np.cumsum(lengths[long])
    bases = ends - lengths[long]
    counts = cut_starts[long + 1] - cut_starts[long]
    owner = np.repeat(np.arange(len(long)), counts)
    stored = cuts[np.repeat(cut_starts[long] - (np.cumsum(counts) - counts), counts) + np.arange(len(owner))]
    size = len(long) + len(owner)
    inner = np.arange(len(owner)) + owner + 1  # each record's points follow its start
    points, strong = np.empty(size + 1, np.int64), np.ones(size + 1, np.bool_)
    points[np.cumsum(counts + 1) - counts - 1], points[size] = bases, ends[-1]
    points[inner], strong[inner] = (stored >> 1) + bases[owner], stored & 1
    record = np.append(np.repeat(np.arange(len(long)), counts + 1), len(long) - 1)
    any_cut = np.searchsorted(points, np.minimum(points + width, ends[record]), side="right") - 1
    here = np.arange(size + 1)
    strong_cut = np.maximum.accumulate(np.where(strong, here, 0))[any_cut]
    following = np.where(points[strong_cut] >= points + (width + 1) // 2, strong_cut, any_cut)
    walk = _walk(np.maximum(following, here + 1))
    visited, owners = points[walk], record[walk[:-1]]
    return long[owners], visited[:-1] - bases[owners], visited[1:] - bases[owners]


def _walk(following: np.ndarray) -> np.ndarray:
    """The indices on the way from index 0 to the last, where `following` maps each index to the next."""
    successors, last = following.data, len(following) - 1
    at, visited = 0, [0]
    while at < last:
        at = successors[at]
        visited.append(at)
    return np.array(visited)
