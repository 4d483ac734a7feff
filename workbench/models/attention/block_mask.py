"""The blocks of 128 queries and 128 keys that flex attention reads, computed from lengths and never rows x rows.

The rows of a sequence are consecutive, so the keys of a block of queries lie between the first key of its first
sequence and the last key of its last one: one interval of blocks, which causality and a window make shorter where they
are known. `mask_mod` decides inside these blocks, except in blocks that are known to be visible as a whole (`full`).
The host computes the ends of the intervals from lengths, O(rows / 128) numbers. The device writes out the block numbers
between them, [blocks, blocks], as in torch's format (4 MiB for 131,072 rows).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from workbench.models.attention.reach import Reach, reach
from workbench.models.attention.request import Request
from workbench.sequences.transfer import on_device

SIZE = 128
"""Rows of a block, as in torch."""


@dataclass(frozen=True)
class BlockSide:
    """Stretches of rows of one side: where each begins and ends, and the number of rows."""

    begins: np.ndarray
    ends: np.ndarray
    rows: int

    @classmethod
    def of(cls, lengths: list[int]) -> BlockSide:
        ends = np.array([0, *accumulate(lengths)], np.int64)
        return cls(ends[:-1], ends[1:], int(ends[-1]))


@dataclass(frozen=True)
class Bounds:
    """The distance that a row sees to each side, in rows, where it is known; None: to the end of the stretch."""

    back: int | None = None
    ahead: int | None = None
    proven: bool = False
    """Whether a row sees all keys within these bounds."""


def block_mask(request: Request, mask_mod: Callable[..., Tensor]) -> BlockMask:
    """The block mask of a request; inside its blocks `mask_mod` decides."""
    queries, keys, bounds = _sides(request)
    device = request.q.device
    found = intervals(queries, keys, bounds)
    counts, indices, full_counts, full_indices = _written_out(found, _blocks(queries.rows), _blocks(keys.rows), device)
    found = turned(found, keys.rows)
    q_counts, q_indices, q_full_counts, q_full_indices = _written_out(
        found, _blocks(keys.rows), _blocks(queries.rows), device
    )
    return BlockMask(
        seq_lengths=(queries.rows, keys.rows),
        kv_num_blocks=counts,
        kv_indices=indices,
        full_kv_num_blocks=full_counts,
        full_kv_indices=full_indices,
        q_num_blocks=q_counts,
        q_indices=q_indices,
        full_q_num_blocks=q_full_counts,
        full_q_indices=q_full_indices,
        BLOCK_SIZE=(SIZE, SIZE),
        mask_mod=mask_mod,
    )


def _sides(request: Request) -> tuple[BlockSide, BlockSide, Bounds]:
    """The stretches of both sides: those that are known to define the visibility, or else the sequences."""
    found = reach(request)
    if isinstance(found, Reach):
        bounds = Bounds(found.window, 0 if found.causal else found.window, True)
        return BlockSide.of(found.queries), BlockSide.of(found.keys), bounds
    alike = request.queries is request.keys and request.queries.places is None
    near = request.window if alike and "everywhere" not in request.queries.integers else None
    return BlockSide.of(request.queries.lengths), BlockSide.of(request.keys.lengths), Bounds(near, near)


def _blocks(rows: int) -> int:
    """The number of blocks, at least two: compiled code would be compiled again for a dimension of one."""
    return max(2, -(-rows // SIZE))


def intervals(rows: BlockSide, others: BlockSide, bounds: Bounds) -> np.ndarray:
    """For each block of rows the blocks of the others [4, blocks]: it begins at the first. Those from the second to the
    third are seen by all rows; the fourth ends it. All four rise from block to block."""
    first = np.arange(0, rows.rows, SIZE)
    last = np.minimum(first + SIZE, rows.rows) - 1
    here, there = np.searchsorted(rows.ends, first, "right"), np.searchsorted(rows.begins, last, "right") - 1
    low, high = others.begins[here], others.ends[there]
    if bounds.back is not None:
        low = np.maximum(low, first - bounds.back)
    if bounds.ahead is not None:
        high = np.minimum(high, last + 1 + bounds.ahead)
    low = np.minimum(low, others.rows - 1)
    begin, end = low // SIZE, -(-np.maximum(high, low + 1) // SIZE)  # one block where nothing is visible
    alone = (here == there) & (last - first == SIZE - 1) & bounds.proven
    low, high = others.begins[here], others.ends[here]
    if bounds.back is not None:
        low = np.maximum(low, last - bounds.back)
    if bounds.ahead is not None:
        high = np.minimum(high, first + bounds.ahead + 1)
    full_begin, full_end = -(-low // SIZE), high // SIZE
    some = alone & (full_end > full_begin)
    full_end = np.maximum.accumulate(np.where(some, full_end, 0))
    return np.stack([begin, np.where(some, full_begin, full_end), full_end, end])


def turned(found: np.ndarray, others: int) -> np.ndarray:
    """The same intervals for the `others` rows of the other side: the blocks of rows that include each of theirs."""
    begin, full_begin, full_end, end = found
    block = np.arange(-(-others // SIZE))
    first, last = np.searchsorted(end, block, "right"), np.searchsorted(begin, block, "right")
    full_first = np.searchsorted(full_end, block, "right")
    full_last = np.maximum(np.searchsorted(full_begin, block, "right"), full_first)
    return np.stack([first, full_first, full_last, np.maximum(first, last)])


def _written_out(
    found: np.ndarray, rows: int, columns: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The numbers of the blocks that `mask_mod` decides, and of those that are full, each as a count and ordered
    numbers.

    One copy from pinned memory brings the ends of the intervals, without a wait.
    """
    begin, full_begin, full_end, end = found
    none = full_end <= full_begin
    found = np.stack([begin, np.where(none, end, full_begin), np.where(none, end, full_end), end])
    ends = torch.from_numpy(np.pad(found, ((0, 0), (0, rows - found.shape[1]))).astype(np.int32))
    ends = on_device(ends, device)
    begins, full_begins, full_ends, all_ends = ends.unsqueeze(-1)
    column = torch.arange(columns, dtype=torch.int32, device=device)
    before, full = full_begins - begins, full_ends - full_begins
    partial = torch.where(column < before, begins + column, full_ends + column - before).clamp_max(columns - 1)
    whole = (full_begins + column).clamp_max(columns - 1)
    counts = (before + all_ends - full_ends).squeeze(-1)
    return counts[None, None], partial[None, None], full.squeeze(-1)[None, None], whole[None, None]
