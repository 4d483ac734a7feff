"""Copies from the host to the device without a wait.

A copy from ordinary memory to a GPU makes the host wait until it is done; one from pinned memory is queued behind the
current work. So the rows, permutations and grids that the host computes from lengths go through pinned memory, for
which torch has a cache.

The host asks the device for numbers once a step, at its end. So a forward pass uses no `item`, `tolist` or `nonzero` of
a tensor on the device, no selection by a mask (`x[mask]` has an unknown size), and makes no tensor from Python numbers.
The loader knows all values that depend on lengths or labels alone: `known` of a head's inputs, a batch and a stream,
and `rows_where`. Permutations of rows go through `workbench.models.permutation`, sums over some rows through
`torch.where`, and constants are buffers. `tests/recipes/test_recipes.py` runs a step of every recipe on a device
without values.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def on_device(values: Tensor | Sequence[int] | Sequence[float], device: torch.device) -> Tensor:
    """Numbers of the host on the device; the same tensor where that is the CPU."""
    tensor = values if isinstance(values, Tensor) else torch.tensor(values)
    if tensor.device.type != "cpu" or device.type == "cpu":
        return tensor.to(device)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def rows_where(mask: Tensor, device: torch.device) -> Tensor:
    """The numbers of the rows that a mask [rows] on the host selects, on the device: selection by a mask there would
    make the host wait for their number."""
    return on_device(mask.nonzero().squeeze(1), device)


def integers_on_device(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Several tensors of int64 of the host on the device, by one copy."""
    if device.type == "cpu":
        return list(tensors)
    packed = on_device(torch.cat([tensor.flatten() for tensor in tensors]), device)
    parts = packed.split([tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]
