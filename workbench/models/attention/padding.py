"""Grouping sequences of similar length into padded grids, for attention without a variable-length kernel.

The grids are made by selecting rows, and since every real row stands in exactly one grid, the gradient is a
selection too (no scattered addition).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from workbench.models.layout import Layout
from workbench.models.permutation import select
from workbench.models.spread import Spread
from workbench.sequences.moving import integers_on_device, on_device

GROUP_WASTE = 0.8  # a sequence joins a group whose longest member it reaches to this share
GROUP_CALL = (
    1 << 15
)  # or while the scores (per head) that padding adds cost less than one more group's small operations
GROUP_SCORES = 1 << 19  # at most this many scores per head in one group, so that they stay in the cache


@dataclass
class Side:
    """The rows of a group's queries or keys: a grid [batch, width] of row numbers, padded with row 0.

    `full`: none is padded; `ordered`: and each row is followed by the next one; `places` are the rows' places in their
    sequences [batch or 1, width]; `sequences` are the numbers of these, where a line of the grid has rows of several;
    `numbers` is the grid on the host, -1 where it is padded, where that is known.
    """

    index: Tensor
    valid: Tensor
    full: bool
    ordered: bool
    places: Tensor
    sequences: Tensor | None = None
    numbers: Tensor | None = None

    @property
    def width(self) -> int:
        return self.index.shape[1]

    @property
    def slots(self) -> int:
        return self.index.numel()

    def take(self, values: Tensor) -> Tensor:
        """Values per row [rows] -> on the grid [batch, width]."""
        return values[self.index]


@dataclass
class Group:
    """Sequences that share one padded call: `members` are their numbers, where each is a line of the grids.

    `kept` is what was made for it and is the same in other layers.
    """

    queries: Side
    keys: Side
    members: list[int]
    kept: dict[Hashable, Any] = field(default_factory=dict)


class Grid:
    """All grids of one side, one after another: `index[slot]` is a row, `place[row]` a slot (-1: in no group). Where
    each slot is the row of its number, nothing is moved (`same`)."""

    def __init__(self, sides: list[Side], rows: int, device: torch.device) -> None:
        self.shapes = [tuple(side.index.shape) for side in sides]
        self.same = len(sides) == 1 and sides[0].ordered and sides[0].slots == rows
        if self.same:
            self.index = self.place = self.source = sides[0].index.flatten()
            self.complete = True
            return
        grids = [side.numbers.flatten() for side in sides if side.numbers is not None]
        source = torch.cat(grids or [torch.zeros(0, dtype=torch.long)])
        slots = (source >= 0).nonzero().squeeze(1)
        place = torch.full((rows,), -1, dtype=torch.long).index_copy_(0, source[slots], slots)
        self.complete = len(slots) == rows
        index = source if len(slots) == len(source) else source.clamp_min(0)
        self.same = len(slots) == len(source) == rows and torch.equal(index, slots)
        self.index, self.place, self.source = integers_on_device([index, place, source], device)

    def split(self, rows: Tensor) -> list[Tensor]:
        """Rows [rows, ...] -> one grid [batch, width, ...] per group."""
        slots = self._select(rows, self.index, self.place, self.complete)
        parts = slots.split([batch * width for batch, width in self.shapes])
        return [part.view(*shape, *rows.shape[1:]) for part, shape in zip(parts, self.shapes, strict=True)]

    def join(self, slots: Tensor) -> Tensor:
        """Concatenated grids [slots, ...] -> rows [rows, ...]; a row in no group is zero."""
        if self.complete:
            return self._select(slots, self.place, self.source, False)
        rows = self._select(slots, self.place.clamp_min(0), self.source, False)
        return rows * (self.place >= 0).to(rows.dtype).view(-1, *([1] * (rows.dim() - 1)))

    def _select(self, values: Tensor, index: Tensor, inverse: Tensor, complete: bool) -> Tensor:
        return values if self.same else select(values, index, inverse, complete)


class Apart:
    """The grids of keys whose sequences stand apart, which are grids as they are.

    Args:
        members: the sequences of each group, ascending.
    """

    def __init__(self, sides: list[Side], members: list[list[int]], room: int) -> None:
        self.sides, self.members, self.room = sides, members, room

    def split(self, rows: Tensor) -> list[Tensor]:
        """Rows [sequences * room, ...] -> one grid [batch, width, ...] per group."""
        grid = rows.unflatten(0, (-1, self.room))
        return [self._part(grid, *group) for group in zip(self.members, self.sides, strict=True)]

    def _part(self, grid: Tensor, members: list[int], side: Side) -> Tensor:
        first, last = members[0], members[-1]
        if last - first + 1 == len(members):
            return grid[first : last + 1, : side.width]
        return grid[on_device(members, grid.device), : side.width]


@dataclass
class Groups:
    """The groups of a pair of layouts, and the grids of its two sides."""

    groups: list[Group]
    queries: Grid
    keys: Grid | Apart


def groups_of(queries: Layout, keys: Layout) -> Groups:
    """The grouping for this pair of layouts, made once."""
    return queries.kept(keys, "groups", lambda: _groups(queries, keys))


def _groups(queries: Layout, keys: Layout) -> Groups:
    members = _members(queries, keys)
    if isinstance(keys, Spread):
        members = [sorted(m) for m in members]
    groups = [Group(_side(queries, m), _side(keys, m), m) for m in members]
    q_grid, k_sides = Grid([g.queries for g in groups], queries.rows, queries.device), [g.keys for g in groups]
    if isinstance(keys, Spread):
        return Groups(groups, q_grid, Apart(k_sides, members, keys.room))
    return Groups(groups, q_grid, Grid(k_sides, keys.rows, keys.device))


def _members(queries: Layout, keys: Layout) -> list[list[int]]:
    """Which sequences share a group: neighbours in length, within bounds on padding and on size."""
    sizes = list(zip(queries.lengths, keys.lengths, strict=True))
    order = sorted((i for i, (q, k) in enumerate(sizes) if q and k), key=lambda i: (-sizes[i][1], -sizes[i][0]))
    one_group = queries.device.type != "cpu"
    members: list[list[int]] = []
    width_q = width_k = wasted = 0
    for i in order:
        q, k = sizes[i]
        close = q >= GROUP_WASTE * width_q and k >= GROUP_WASTE * width_k
        waste = 0 if close else width_q * width_k - q * k
        fits = q <= width_q and wasted + waste <= GROUP_CALL
        if members and (one_group or (fits and (len(members[-1]) + 1) * width_q * width_k <= GROUP_SCORES)):
            members[-1].append(i)
            wasted += waste
        else:
            members.append([i])
            width_q, width_k, wasted = q, k, 0
    return members


def _side(layout: Layout, members: list[int]) -> Side:
    lengths, starts = [layout.lengths[i] for i in members], [layout.starts[i] for i in members]
    width, device = max(lengths), layout.device
    counted = torch.arange(width)[None]
    valid, full = counted < torch.tensor(lengths)[:, None], min(lengths) == width
    places = torch.tensor(starts)[:, None] + counted  # in contiguous order
    places = places if full else torch.where(valid, places, 0)
    index = places if layout.order is None else layout.order[places]
    index = index if full or layout.order is None else torch.where(valid, index, 0)
    numbers = index if full else torch.where(valid, index, -1)
    ordered = full and layout.order is None and all(b - a == width for a, b in pairwise(starts))
    index, counted, places = integers_on_device([index, counted, places], device)
    if layout.places is not None:
        counted = layout.places[places]
    return Side(index, on_device(valid, device), full, ordered, counted, numbers=numbers)
