"""What heads embed in a step, gathered on every rank in the order of the lanes.

A head embeds the same fields in every micro-batch, of the same number types and widths; only the number of rows may
differ. So the ranks describe the fields to each other once, and again where a rank has others. Any further step takes
two exchanges of tensors: the sum of a few numbers with the rows of each lane, and one gather of all fields as bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from workbench.core.processes.distributed import World

EmbeddedFields = dict[str, Tensor]
Layout = dict[str, tuple[torch.dtype, torch.Size]]
"""The number type of each field, and the shape of one row of it."""


class EmbeddingGather:
    """Gathers what one head embeds, step after step; every rank takes part.

    Args:
        lanes: micro-batches of a step over all ranks; rank r of R has the lanes r, r + R, ...
    """

    def __init__(self, lanes: int, world: World) -> None:
        self.lanes, self.world = lanes, world
        self._layout: Layout = {}

    def __call__(self, mine: Mapping[int, EmbeddedFields]) -> tuple[EmbeddedFields, dict[int, slice]]:
        """Every field in lane order, detached, and the rows of each lane in it.

        Args:
            mine: this rank's fields by lane, each [rows of the lane, ...]; a rank may have none.

        Raises:
            ValueError: ranks or lanes have fields of different kinds.
        """
        if self.world.size == 1:
            lengths = [len(next(iter(mine[lane].values()), ())) if lane in mine else 0 for lane in range(self.lanes)]
            return _joined(mine), _slices(lengths)
        layouts = [_layout_of(fields) for fields in mine.values()]
        # the rows of each lane, and whether a rank has other fields than those described
        numbers = torch.zeros(self.lanes + 1, dtype=torch.int64)
        for lane, fields in mine.items():
            numbers[lane] = len(next(iter(fields.values()), ()))
        numbers[-1] = any(layout != self._layout for layout in layouts)
        *rows, others = self.world.sum(numbers).tolist()
        if others:
            self._layout = _agreed(each for rank in self.world.gather(layouts) for each in rank)
        return self._unpacked(self._exchanged(self._packed(mine), rows)), _slices(rows)

    def _packed(self, mine: Mapping[int, EmbeddedFields]) -> Tensor:
        """This rank's rows, in lane order: the bytes of all fields side by side [rows, bytes]."""
        parts, own = [], _joined(mine)
        for name, (dtype, shape) in self._layout.items():
            field = own[name] if own else torch.empty((0, *shape), dtype=dtype, device=self.world.device)
            parts.append(field.reshape(len(field), math.prod(shape)).contiguous().view(torch.uint8))
        return torch.cat(parts, 1) if parts else torch.empty((0, 0), dtype=torch.uint8, device=self.world.device)

    def _exchanged(self, own: Tensor, rows: list[int]) -> Tensor:
        """The rows of all ranks, in lane order."""
        size = self.world.size
        if not any(rows):
            return own
        most = max(sum(rows[rank::size]) for rank in range(size))
        padded = own.new_zeros(most, own.shape[1])
        padded[: len(own)] = own
        everyone = self.world.gather_rows(padded)
        if len(set(rows)) == 1 and self.lanes % size == 0:
            return everyone.view(size, self.lanes // size, rows[0], -1).transpose(0, 1).flatten(0, 2)
        first = [sum(rows[lane % size : lane : size]) for lane in range(self.lanes)]
        return torch.cat([everyone[lane % size, first[lane] : first[lane] + rows[lane]] for lane in range(self.lanes)])

    def _unpacked(self, rows: Tensor) -> EmbeddedFields:
        found, at = {}, 0
        for name, (dtype, shape) in self._layout.items():
            width = math.prod(shape) * dtype.itemsize
            own = rows[:, at : at + width].clone(memory_format=torch.contiguous_format)  # so that it begins at its type
            found[name] = own.view(dtype).reshape(len(rows), *shape)
            at += width
        return found


def _joined(mine: Mapping[int, EmbeddedFields]) -> EmbeddedFields:
    """The fields of all lanes, in lane order."""
    names = sorted(next(iter(mine.values()), ()))
    return {name: torch.cat([mine[lane][name].detach() for lane in sorted(mine)]) for name in names}


def _slices(rows: Sequence[int]) -> dict[int, slice]:
    """The rows of each lane among those of all."""
    ends = accumulate(rows)
    return {lane: slice(end - count, end) for lane, (end, count) in enumerate(zip(ends, rows, strict=True))}


def _layout_of(fields: EmbeddedFields) -> Layout:
    return {name: (fields[name].dtype, fields[name].shape[1:]) for name in sorted(fields)}


def _agreed(layouts: Iterable[Layout]) -> Layout:
    """The layout that all lanes with rows have."""
    found: list[Layout] = []
    for layout in layouts:
        if layout not in found:
            found.append(layout)
    if len(found) != 1:
        raise ValueError(f"lanes hold embeddings of different kinds: {found}")
    return found[0]
