"""Sequences grouped by length and padded inside the call: any request; the CPU's path.

Grouping sequences of similar length into padded grids, for attention without a variable-length kernel.

The grids are made by selecting rows. Since every real row is in exactly one grid, the gradient is a selection too (no
scattered addition).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from workbench.models.attention.request import Request, Result, for_each_query, term
from workbench.models.attention.score_bias import QueryKeyGrid
from workbench.models.attention.visibility import near, visible
from workbench.models.dropout import dropout
from workbench.models.layout import CacheLayout, Layout
from workbench.models.permutation import select
from workbench.sequences.transfer import integers_on_device, on_device

WITHOUT_PLANS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""The kernels for a GPU: all but cuDNN, which plans every shape anew, and ragged batches have a new one each time."""


def padded(request: Request) -> Result:
    """Attention in padded groups of sequences of similar length; the grouping is made once per pair of layouts."""
    groups = groups_of(request.queries, request.keys)
    grids = zip(
        groups.groups,
        groups.queries.split(request.q),
        groups.keys.split(request.k),
        groups.keys.split(request.v),
        strict=True,
    )
    outs, weights = [], _no_weights(request) if request.need_weights else None
    for group, q, k, v in grids:
        out, seen = group_attention(request, group, q, k, v)
        outs.append(out.flatten(0, 1))
        if weights is not None and seen is not None:
            for number, of_one in zip(group.members, seen, strict=True):
                weights[number] = of_one[:, : request.queries.lengths[number], : request.keys.lengths[number]]
    if not outs:
        return torch.zeros_like(request.q), weights
    return groups.queries.join(outs[0] if len(outs) == 1 else torch.cat(outs)), weights


def group_attention(
    request: Request, group: PaddedGroup, q: Tensor, k: Tensor, v: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Attention on the grids of a group, each [batch, length, heads, size] -> [batch, q, heads, size], weights.

    The weights [batch, heads, q, k] are those before dropout, None where the request needs none.
    """
    mask, blind = _group_mask(request, group)
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    out, weights = _grid_attention(q, k, v, _bias(request, group, mask, q, k), request)
    if blind is not None:
        out = out.masked_fill(blind, 0.0)
        weights = None if weights is None else weights.masked_fill(blind, 0.0)
    return out.transpose(1, 2), weights


def _grid_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, request: Request
) -> tuple[Tensor, Tensor | None]:
    """Attention on one grid [batch, heads, length, size]; written out where torch has no fused kernel with dropout, and
    where its weights are needed."""
    p = request.dropout
    if request.grouped and (request.need_weights or (p > 0.0 if not q.is_cuda else bias is not None)):
        k, v = (
            for_each_query(heads, q.shape[1], 1) for heads in (k, v)
        )  # no fast kernel of a GPU has groups and masks
    options: dict[str, Any] = {"scale": request.scale, "enable_gqa": k.shape[1] != q.shape[1]}
    if not request.need_weights and q.is_cuda:
        bias = None if bias is None else _whole(bias, k.shape[-2])
        with sdpa_kernel(WITHOUT_PLANS):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=p, **options), None
    if not request.need_weights and p == 0.0:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, **options), None
    scores = (q * request.factor) @ k.transpose(-1, -2)
    if bias is not None:
        scores = scores + bias
    weights = torch.softmax(scores, -1)
    return dropout(weights, p, True, request.heads) @ v, weights.to(v.dtype) if request.need_weights else None


def _no_weights(request: Request) -> list[Tensor]:
    """The weights of sequences that see nothing [heads, q, k]."""
    sizes = zip(request.queries.lengths, request.keys.lengths, strict=True)
    return [request.q.new_zeros(request.q.shape[1], *size) for size in sizes]


def _whole(bias: Tensor, keys: int) -> Tensor:
    """A bias with a number for every key, contiguous: kernels of a GPU accept no other."""
    return bias.expand(*bias.shape[:-1], keys).contiguous()


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where the mask allows and -inf elsewhere. Adding it to all heads' scores is several times faster than filling
    them, and costs nothing in the backward."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, float("-inf"))


def _group_mask(request: Request, group: PaddedGroup) -> tuple[Tensor | None, Tensor | None]:
    """The mask [batch, 1, q, k] of a group (None where all is visible) and the queries that see nothing."""
    if (kept := group.kept.get(("mask", request.window))) is not None:
        return kept
    mask = None if group.keys.full else group.keys.valid[:, None, :]
    q_integers = {n: group.queries.take(t) for n, t in request.queries.integers.items()}
    k_integers = {n: group.keys.take(t) for n, t in request.keys.integers.items()}
    seen = visible(q_integers, k_integers)
    if seen is not None:
        mask = seen if mask is None else mask & seen
    if request.window is not None:
        close = near(q_integers, k_integers, group.queries.places, group.keys.places, request.window)
        mask = close if mask is None else mask & close
    if group.queries.sequences is not None and group.keys.sequences is not None:
        same = group.queries.sequences[:, :, None] == group.keys.sequences[:, None, :]
        mask = same if mask is None else mask & same
    blind = None
    if mask is not None:
        mask = mask.expand(-1, group.queries.width, -1).unsqueeze(1)
        sees = mask.any(-1, keepdim=True)
        if seen is not None or request.window is not None:
            on_cpu = sees.device.type == "cpu"  # on another device the check would wait
            blind = None if on_cpu and bool(sees.all()) else ~sees
            mask = mask if blind is None else mask | blind
    group.kept["mask", request.window] = (mask, blind)
    return mask, blind


def _bias(request: Request, group: PaddedGroup, mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """The bias of a group's scores [batch or 1, 1 or heads, q, k]: the score bias's term, -inf where the mask hides.

    It is kept for the other layers where it is the same there: without a score bias, and for one that does not read
    queries and keys as long as nothing learns (a term that is recomputed in a backward must be recomputed)."""
    score_bias = request.score_bias
    if score_bias is None and mask is None:
        return None
    name = ("bias", request.window, score_bias, q.dtype)
    if (kept := group.kept.get(name)) is not None:
        return kept
    bias = None if mask is None else _additive(mask, q.dtype)
    if score_bias is not None:
        queries, keys = group.queries, group.keys
        grids = queries.index, keys.index, queries.places, keys.places
        each = for_each_query(k, q.shape[1], 1)
        pair = QueryKeyGrid(q, each, request.queries, request.keys, *grids, request.factor, _hidden(group, mask))
        added = term(score_bias, pair).to(q.dtype)
        bias = added if bias is None else added + bias
    if score_bias is None or (score_bias.by_fields and not torch.is_grad_enabled()):
        group.kept[name] = bias
    return bias


def _hidden(group: PaddedGroup, mask: Tensor | None) -> Tensor | None:
    """The pairs of a grid that don't see each other, where it has rows of several sequences."""
    return None if mask is None or group.queries.sequences is None else ~mask.squeeze(1)


GROUP_WASTE = 0.8  # a sequence joins a group whose longest member it reaches to this share
GROUP_CALL = (
    1 << 15
)  # or while the scores (per head) that padding adds cost less than one more group's small operations
GROUP_SCORES = 1 << 19  # at most this many scores per head in one group, so that they stay in the cache


@dataclass
class GridSide:
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
class PaddedGroup:
    """Sequences that share one padded call: `members` are their numbers, where each is a line of the grids.

    `kept` caches the values for it that are the same in other layers.
    """

    queries: GridSide
    keys: GridSide
    members: list[int]
    kept: dict[Hashable, Any] = field(default_factory=dict)


class RowGrid:
    """All grids of one side, one after another: `index[slot]` is a row, `place[row]` a slot (-1: in no group). Where
    each slot is the row of its number, nothing is moved (`same`)."""

    def __init__(self, sides: list[GridSide], rows: int, device: torch.device) -> None:
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


class SeparateRows:
    """The grids of keys whose sequences are stored apart; the storage is used directly.

    Args:
        members: the sequences of each group, ascending.
    """

    def __init__(self, sides: list[GridSide], members: list[list[int]], room: int) -> None:
        self.sides, self.members, self.room = sides, members, room

    def split(self, rows: Tensor) -> list[Tensor]:
        """Rows [sequences * room, ...] -> one grid [batch, width, ...] per group."""
        grid = rows.unflatten(0, (-1, self.room))
        return [self._part(grid, *group) for group in zip(self.members, self.sides, strict=True)]

    def _part(self, grid: Tensor, members: list[int], side: GridSide) -> Tensor:
        first, last = members[0], members[-1]
        if last - first + 1 == len(members):
            return grid[first : last + 1, : side.width]
        return grid[on_device(members, grid.device), : side.width]


@dataclass
class PaddedGroups:
    """The groups of a pair of layouts, and the grids of its two sides."""

    groups: list[PaddedGroup]
    queries: RowGrid
    keys: RowGrid | SeparateRows


def groups_of(queries: Layout, keys: Layout) -> PaddedGroups:
    """The grouping for this pair of layouts, made once."""
    return queries.kept(keys, "groups", lambda: _groups(queries, keys))


def _groups(queries: Layout, keys: Layout) -> PaddedGroups:
    members = _members(queries, keys)
    if isinstance(keys, CacheLayout):
        members = [sorted(m) for m in members]
    groups = [PaddedGroup(_side(queries, m), _side(keys, m), m) for m in members]
    q_grid, k_sides = RowGrid([g.queries for g in groups], queries.rows, queries.device), [g.keys for g in groups]
    if isinstance(keys, CacheLayout):
        return PaddedGroups(groups, q_grid, SeparateRows(k_sides, members, keys.room))
    return PaddedGroups(groups, q_grid, RowGrid(k_sides, keys.rows, keys.device))


def _members(queries: Layout, keys: Layout) -> list[list[int]]:
    """The sequences that share a group: neighbours in length, within bounds on padding and on size."""
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


def _side(layout: Layout, members: list[int]) -> GridSide:
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
    return GridSide(index, on_device(valid, device), full, ordered, counted, numbers=numbers)
