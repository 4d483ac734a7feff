"""Rows of sequences that stand apart: each sequence has room for the same number of rows, and its own are the first.

What is read later is written behind them, and the rows as they stand are a grid [sequences, room] that attention reads
without moving any: a step of generation costs the keys and values of its own rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from workbench.models.layout import Layout, layout_of
from workbench.sequences.batch import Stream
from workbench.sequences.moving import on_device

SPARE = 32
"""Room for at least so many rows more, and for a quarter of the longest sequence."""


def slots(sequences: Sequence[int], counts: Sequence[int], room: int, first: Sequence[int] | None = None) -> Tensor:
    """Where `counts` rows of these sequences stand, from the row `first` of each on (by default from 0)."""
    begins = torch.tensor([number * room for number in sequences])
    if first is not None:
        begins = begins + torch.tensor(first)
    if all(count == 1 for count in counts):
        return begins
    widths = torch.tensor(counts)
    within = torch.arange(int(widths.sum())) - torch.repeat_interleave(widths.cumsum(0) - widths, widths)
    return torch.repeat_interleave(begins, widths) + within


def order_of(lengths: Sequence[int], room: int) -> Tensor:
    """Where the rows of all sequences stand, one sequence after another."""
    return slots(range(len(lengths)), lengths, room)


class Shelves:
    """Where the rows of a stream stand and where new ones go, for every layer alike.

    Args:
        lengths: rows that each sequence has.
        more: rows that come to each.
        room: that there is; None where the rows that are there stand together.
    """

    def __init__(self, lengths: list[int], more: list[int], room: int | None, device: torch.device) -> None:
        total = [a + b for a, b in zip(lengths, more, strict=True)]
        need = max(total, default=0)
        self.before = room
        self.room = room if room is not None and need <= room else need + max(SPARE, need // 4)
        self.sequences = len(lengths)
        numbers = range(len(lengths))
        self.old = None if room is not None else on_device(slots(numbers, lengths, self.room), device)
        self.new = on_device(slots(numbers, more, self.room, lengths), device) if any(more) else None
        self._total, self._device = total, device
        self._order: Tensor | None = None

    @property
    def order(self) -> Tensor:
        """Where all rows stand, one sequence after another."""
        if self._order is None:
            self._order = on_device(order_of(self._total, self.room), self._device)
        return self._order

    def put(self, new: Tensor, before: Tensor | None, writes: bool) -> Tensor:
        """The rows that were there and the new ones [sequences * room, ...]; `writes` says that `before` may change."""
        grid = self._grid(new, before)
        if self.new is None:
            return grid
        if grid is before and not (writes and grid.is_inference() == torch.is_inference_mode_enabled()):
            grid = grid.clone()
        return grid.index_copy_(0, self.new, new)

    def _grid(self, new: Tensor, before: Tensor | None) -> Tensor:
        """The rows that were there, with the room that is needed now."""
        if before is not None and self.before == self.room and before.dtype == new.dtype:
            return before
        grid = new.new_zeros(self.sequences * self.room, *new.shape[1:])
        if before is None:
            return grid
        if self.before is None:
            assert self.old is not None
            return grid.index_copy_(0, self.old, before.to(new.dtype))
        grid.unflatten(0, (-1, self.room))[:, : self.before] = before.unflatten(0, (-1, self.before))
        return grid


class Spread(Layout):
    """The layout of the rows of a stream that stand apart, with fields [sequences * room]."""

    def __init__(self, stream: Stream, room: int) -> None:
        super().__init__(stream.lengths, stream.offsets, stream.integers, streams=(stream,))
        self.room = room

    @cached_property
    def starts(self) -> list[int]:
        """Where each sequence begins."""
        return [number * self.room for number in range(len(self.lengths))]

    @cached_property
    def counted(self) -> bool:
        """Not looked into: the queries of a past have places of their own anyway, so that nothing would be saved."""
        return False

    @cached_property
    def slots(self) -> Tensor:
        """Where the rows stand, one sequence after another."""
        return on_device(order_of(self.lengths, self.room), self.device)

    def contiguous(self, values: Tensor) -> Tensor:
        """Values of the rows one sequence after another."""
        return values[self.slots]

    @cached_property
    def together(self) -> Layout:
        """The layout of the same rows one sequence after another."""
        (stream,) = self.streams
        fields = {name: self.contiguous(values) for name, values in stream.fields.items()}
        return layout_of([Stream(fields, stream.offsets, stream.lengths)])
