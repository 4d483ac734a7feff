"""The rows of a layout that are exempt from a window (`everywhere`), as queries of their own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.models.layout import Layout, layout_of
from workbench.sequences.batch import Stream
from workbench.sequences.transfer import integers_on_device


@dataclass
class GlobalRows:
    """Rows that see all of their sequence, in the order of the batch's rows, and their division into sequences."""

    rows: Tensor
    layout: Layout


def global_rows(layout: Layout) -> GlobalRows:
    """The rows of a layout that are everywhere, with their fields; made once.

    They are found by the host's copy of the field, without a wait for the device.
    """
    return layout.kept(layout, "global rows", lambda: _global_rows(layout))


def _global_rows(layout: Layout) -> GlobalRows:
    whole = layout.streams or (Stream(layout.integers, layout.offsets, layout.lengths),)
    sizes, streams, numbers = [stream.rows for stream in whole], [], []
    for stream, number, positions in zip(whole, _numbers(layout, sizes), layout.positions.split(sizes), strict=True):
        marked = stream.known("everywhere") > 0 if "everywhere" in stream.fields else torch.zeros(stream.rows).bool()
        counts = [int(part.sum()) for part in marked.split(stream.lengths)]
        offsets = torch.tensor([0, *counts]).cumsum(0)
        mine, offsets = integers_on_device([marked.nonzero()[:, 0], offsets], layout.device)
        fields = {name: values[mine] for name, values in stream.fields.items() if len(values) == stream.rows}
        streams.append(Stream({**fields, "position_ids": positions[mine]}, offsets, counts))
        numbers.append(number[mine])
    rows = torch.cat(numbers)
    return GlobalRows(rows, layout_of(streams, layout.restored(layout.index)[rows]))


def _numbers(layout: Layout, sizes: list[int]) -> tuple[Tensor, ...]:
    """The numbers of the rows of each stream."""
    return torch.arange(layout.rows, device=layout.device).split(sizes)
