"""From the host to the device without a wait.

A copy from ordinary memory to a GPU makes the host wait until it is done; one from pinned memory is queued behind the
work that is there. So what the host makes of lengths (rows to be picked, permutations, grids) goes by way of pinned
memory, of which torch keeps a store, and nobody waits.
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
    """Which rows of a mask [rows] on the host are set, on the device: to select by, where a mask there would make the
    host wait for their number."""
    return on_device(mask.nonzero().squeeze(1), device)


def integers_on_device(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Several tensors of int64 of the host on the device, by one copy."""
    if device.type == "cpu":
        return list(tensors)
    packed = on_device(torch.cat([tensor.flatten() for tensor in tensors]), device)
    parts = packed.split([tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]
