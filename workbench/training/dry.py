"""Passes that leave no trace: what a forward moves is put back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def dry(root: nn.Module) -> Iterator[None]:
    """A block after which nothing has moved: a module's buffers (batch statistics, queues, counters) and modes, and
    torch's generators.

    A buffer that was exchanged for another tensor is the one before again. Takes the memory of the buffers once more.
    """
    modules = list(root.modules())
    buffers = [(module, dict(module._buffers)) for module in modules]
    modes = [module.training for module in modules]
    values: dict[Tensor, Tensor] = {}
    for _, named in buffers:
        values |= {buffer: buffer.detach().clone() for buffer in named.values() if buffer is not None}
    devices = {tensor.device for tensor in (*root.parameters(), *values) if tensor.device.type == "cuda"}
    with torch.random.fork_rng([device.index for device in devices]):
        try:
            yield
        finally:
            _restore(buffers, values)
            for module, training in zip(modules, modes, strict=True):
                module.training = training


@torch.no_grad()
def _restore(buffers: list[tuple[nn.Module, dict[str, Tensor | None]]], values: dict[Tensor, Tensor]) -> None:
    for module, named in buffers:
        module._buffers.clear()
        module._buffers.update(named)
    for buffer, value in values.items():
        buffer.copy_(value)
