"""The window of a local layer as a band: chunks of queries against the keys around them.

A chunk of c consecutive queries is multiplied with c + 2 w keys (w: the window), so that time and memory grow with the
number of rows, not with its square. The chunks are cut from the rows of all sequences one after another, and the mask
keeps sequences apart: short and long ones share a call. The pairs of a chunk that see each other are those of the
padded kernel's masks, on other grids.

Rows that are `everywhere` are keys of every chunk of their sequence; as queries they read all of it, with the padded
kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from workbench.models.attention.global_rows import GlobalRows, global_rows
from workbench.models.attention.padded import GridSide, PaddedGroup, group_attention, padded
from workbench.models.attention.request import Request, Result
from workbench.models.checkpointing import recomputed
from workbench.models.layout import CacheLayout, Layout

SAVES = 1.5  # the ratio of the scores that padding would compute to those of the bands, above which bands are faster
BLOCK = 1 << 17  # scores per head that are computed at once, more only where a single chunk has more


def banded_suits(request: Request) -> bool:
    """Whether there is a layer with a window, whose rows read themselves, and sequences are long enough."""
    queries, window = request.queries, request.window
    if window is None or queries is not request.keys or isinstance(queries, CacheLayout) or not queries.rows:
        return False
    if "everywhere" in queries.integers and request.score_bias is not None and not request.score_bias.by_fields:
        return False  # its term may cost as much as that of the farthest pair
    return queries.kept(queries, ("saves", window), lambda: _saves(queries, window))


def banded_lacks(request: Request) -> str | None:
    """The feature that needs all scores of a sequence, or rows other than those of the keys; None where none does."""
    if request.need_weights:
        return "weights to look at"
    if request.window is None:
        return "attention without a window"
    return None if request.queries is request.keys else "keys of other rows than the queries"


def banded(request: Request) -> Result:
    """Attention of each chunk to the keys around it; rows that are everywhere also attend to their whole sequence."""
    window = request.window
    assert window is not None
    if not request.queries.rows:
        return torch.zeros_like(request.q), None
    bands = request.queries.kept(request.queries, ("bands", window), lambda: _bands(request.queries, window))
    grids = zip(
        bands.groups,
        _chunks(request.queries, request.q, bands.groups),
        _split(bands.windows, request.k),
        _split(bands.windows, request.v),
        strict=True,
    )
    written = request.score_bias is not None or (request.dropout > 0 and not request.q.is_cuda)
    again = written and torch.is_grad_enabled()  # scores that are written out are recomputed in the backward
    outs = []
    for group, q, k, v in grids:
        attention = partial(group_attention, request, group)
        out, _ = recomputed(attention, q, k, v) if again else attention(q, k, v)
        outs.append(out.flatten(0, 1))
    joined = request.queries.restored((outs[0] if len(outs) == 1 else torch.cat(outs))[: request.queries.rows])
    if bands.everywhere is None:
        return joined, None
    rows = bands.everywhere.rows
    whole, _ = padded(replace(request, q=request.q.index_select(0, rows), queries=bands.everywhere.layout, window=None))
    return joined.index_copy(0, rows, whole.to(joined.dtype)), None


@dataclass
class Bands:
    """The chunks of a layout for one window, in blocks whose scores stay in the cache."""

    groups: list[PaddedGroup]
    windows: Windows | PickedRows
    everywhere: GlobalRows | None


class Windows:
    """The keys around each chunk, as views of the rows; the first and last have padding around them.

    Args:
        counts: chunks of each block.
        size, window: rows of a chunk, and before and behind it.
    """

    def __init__(self, layout: Layout, counts: list[int], size: int, window: int) -> None:
        self.size, self.window, self.rows = size, window, layout.rows
        numbers = torch.arange(layout.rows, device=layout.device)
        self.order = None if layout.order is None else layout.contiguous(numbers)
        self.inverse = None if layout.order is None else layout.restored(numbers)
        ends = list(accumulate(counts, initial=0))
        self.blocks = [(first * size - window, last * size + window) for first, last in pairwise(ends)]

    def cut(self, rows: Tensor, block: int) -> Tensor:
        """Rows [rows, ...] -> those of a block [chunks, size + 2 * window, ...]."""
        begin, end = self.blocks[block]
        inside = rows[max(begin, 0) : end]
        if len(inside) < end - begin:
            room = rows.new_zeros(end - begin, *rows.shape[1:])
            room[max(-begin, 0) :][: len(inside)] = inside
            inside = room
        width = self.size + 2 * self.window
        strides, chunks = inside.stride(), (end - begin - 2 * self.window) // self.size
        shape, steps = (chunks, width, *rows.shape[1:]), (self.size * strides[0], *strides)
        return inside.as_strided(shape, steps, inside.storage_offset())

    def add(self, total: Tensor, gradient: Tensor, block: int) -> None:
        """Add the gradient of a block to that of the rows."""
        begin, end = self.blocks[block]
        parts, chunks = gradient.split(self.size, 1), len(gradient)
        here = gradient.new_zeros(chunks + len(parts), self.size, *gradient.shape[2:])
        for number, part in enumerate(parts):
            here[number : number + chunks, : part.shape[1]] += part
        into = total[max(begin, 0) : end]
        into += here.flatten(0, 1)[max(-begin, 0) :][: len(into)]


class PickedRows:
    """The keys of each chunk, by their numbers: those around it, and those that are everywhere.

    Args:
        index: per block [chunks, keys], of rows in the batch's order.
    """

    order = inverse = None

    def __init__(self, index: list[Tensor], rows: int) -> None:
        self.blocks, self.rows = index, rows

    def cut(self, rows: Tensor, block: int) -> Tensor:
        """Rows [rows, ...] -> those of a block [chunks, keys, ...]."""
        index = self.blocks[block]
        return rows.index_select(0, index.flatten()).unflatten(0, index.shape)

    def add(self, total: Tensor, gradient: Tensor, block: int) -> None:
        """Add the gradient of a block to that of the rows."""
        total.index_add_(0, self.blocks[block].flatten(), gradient.flatten(0, 1))


class _Sums:
    """The sum of gradients of blocks of rows; each is added at once, so that only one block's is in memory."""

    def __init__(self, how: Windows | PickedRows) -> None:
        self.how = how
        self.total: Tensor | None = None

    def add(self, gradient: Tensor, block: int) -> None:
        if self.total is None:
            self.total = gradient.new_zeros(self.how.rows, *gradient.shape[2:])
        self.how.add(self.total, gradient, block)

    def take(self) -> Tensor:
        """The sum; another backward begins anew."""
        total, self.total = self.total, None
        assert total is not None
        return total if self.how.inverse is None else total.index_select(0, self.how.inverse)


class _Whole(torch.autograd.Function):
    """Rows -> a token, whose gradient is available when those of all blocks have been added."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sums: _Sums) -> Tensor:
        ctx.sums = sums
        return rows.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.sums.take(), None


class _BlockAttention(torch.autograd.Function):
    """The attention of a block of the rows."""

    @staticmethod
    def forward(ctx: Any, token: Tensor, rows: Tensor, sums: _Sums, block: int) -> Tensor:
        ctx.sums, ctx.block = sums, block
        return sums.how.cut(rows, block)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        ctx.sums.add(gradients[0], ctx.block)
        return gradients[0].new_zeros(()), None, None, None


def _chunks(queries: Layout, rows: Tensor, groups: list[PaddedGroup]) -> Sequence[Tensor]:
    """Rows [rows, ...] -> the chunks of each block [chunks, size, ...], zeros behind the last row."""
    ordered, slots = queries.contiguous(rows), sum(group.queries.slots for group in groups)
    if slots > len(ordered):
        ordered = torch.cat([ordered, ordered.new_zeros(slots - len(ordered), *rows.shape[1:])])
    shapes = [group.queries.index.shape for group in groups]
    return ordered.unflatten(0, (-1, shapes[0][1])).split([count for count, _ in shapes])


def _split(how: Windows | PickedRows, rows: Tensor) -> Iterator[Tensor]:
    """The keys of each block, made one by one: the backward then frees their gradients one by one."""
    ordered = rows.detach()
    ordered = ordered if how.order is None else ordered.index_select(0, how.order)
    if not (torch.is_grad_enabled() and rows.requires_grad):
        yield from (how.cut(ordered, block) for block in range(len(how.blocks)))
        return
    sums = _Sums(how)
    token = _Whole.apply(rows, sums)
    for block in range(len(how.blocks)):
        yield _BlockAttention.apply(token, ordered, sums, block)


def _chunk(window: int) -> int:
    """Rows of a chunk, as measured: fewer make too small a product, more are multiplied with too many unseen keys."""
    return 32 if window <= 32 else 64 if window <= 128 else 128


def _saves(layout: Layout, window: int) -> bool:
    """Whether the bands have so many fewer scores than padding that their smaller products pay."""
    size = _chunk(window)
    whole = sum(length * length for length in layout.lengths)
    banded = -(-layout.rows // size) * size * (size + 2 * window)
    if SAVES * banded > whole or "everywhere" not in layout.integers:
        return SAVES * banded <= whole
    marked = layout.contiguous_integers["everywhere"] > 0
    counts = torch.zeros_like(layout.offsets[1:]).index_add_(0, layout.sequence_ids, marked.long()).tolist()
    whole_rows = sum(count * length for count, length in zip(counts, layout.lengths, strict=True))
    return SAVES * (banded + layout.rows * max(counts) + whole_rows) <= whole


def _bands(layout: Layout, window: int) -> Bands:
    """The bands of a layout, on rows in the contiguous order of sequences."""
    size, rows, device = _chunk(window), layout.rows, layout.device
    chunks = -(-rows // size)
    first = torch.arange(chunks, device=device)[:, None] * size
    at = first + torch.arange(size, device=device)
    around = first + torch.arange(-window, size + window, device=device)
    real, known = at < rows, (around >= 0) & (around < rows)
    marked = _marked(layout)
    if len(marked):
        around, known = _with_global_rows(layout, at, around, known, marked)
    at, around = at.clamp_max(rows - 1), around.clamp(0, rows - 1)
    queries, keys = _side(layout, at, real), _side(layout, around, known)
    counts = _blocks(chunks, size, around.shape[1]) if device.type == "cpu" else [chunks]
    parts = zip(_cut(queries, counts), _cut(keys, counts), strict=True)
    groups = [PaddedGroup(q, k, []) for q, k in parts]
    if not len(marked):
        return Bands(groups, Windows(layout, counts, size, window), None)
    picked = PickedRows([group.keys.index for group in groups], rows)
    return Bands(groups, picked, global_rows(layout))


def _marked(layout: Layout) -> Tensor:
    """The rows that are everywhere in the contiguous order, ascending."""
    marks = layout.contiguous_integers.get("everywhere")
    return layout.offsets[:0] if marks is None else (marks > 0).nonzero()[:, 0]


def _blocks(chunks: int, size: int, keys: int) -> list[int]:
    """Chunks of each block."""
    most = max(1, BLOCK // (size * keys))
    return [min(most, chunks - first) for first in range(0, chunks, most)]


def _side(layout: Layout, at: Tensor, valid: Tensor) -> GridSide:
    """The rows at these places of the contiguous order."""
    numbers = layout.contiguous(torch.arange(layout.rows, device=layout.device))
    return GridSide(numbers[at], valid, False, False, layout.index[at], layout.sequence_ids[at])


def _cut(side: GridSide, counts: list[int]) -> list[GridSide]:
    """The blocks of a side."""
    assert side.sequences is not None
    parts = (values.split(counts) for values in (side.index, side.valid, side.places, side.sequences))
    return [GridSide(index, valid, False, False, *rest) for index, valid, *rest in zip(*parts, strict=True)]


def _with_global_rows(
    layout: Layout, at: Tensor, around: Tensor, known: Tensor, marked: Tensor
) -> tuple[Tensor, Tensor]:
    """The keys around each chunk, followed by those that are everywhere in its sequences and not around it."""
    of, starts = layout.sequence_ids, layout.offsets
    last = at[:, -1].clamp_max(layout.rows - 1)
    begin = torch.searchsorted(marked, starts[of[at[:, 0]]])
    end = torch.searchsorted(marked, starts[of[last] + 1])
    numbers = begin[:, None] + torch.arange(int((end - begin).max()), device=at.device)
    more = marked[numbers.clamp_max(len(marked) - 1)]
    away = (more < around[:, :1]) | (more > around[:, -1:])
    return torch.cat([around, more], 1), torch.cat([known, (numbers < end[:, None]) & away], 1)
