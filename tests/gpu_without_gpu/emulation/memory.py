"""Tensors of the pretend device and of the CPU over the same memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from tests.gpu_without_gpu.emulation.counting import silence

UNSET = 1 << 30
"""What memory that nobody has written holds, as whole numbers; as a float it is NaN."""


def alias(value: Any) -> Any:
    """A CPU tensor over the memory of a CUDA tensor; anything else as it is. It must not outlive the tensor."""
    if not isinstance(value, Tensor) or value.device.type != "cuda":
        return value
    if value.numel() == 0:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
    storage = value.untyped_storage()
    shared = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), torch.device("cpu"), storage.nbytes())
    return torch.empty(0, dtype=value.dtype).set_(shared, value.storage_offset(), value.shape, value.stride())


def on_cpu(tree: Any) -> Any:
    """The same arguments for the CPU."""
    return tree_map(lambda x: torch.device("cpu") if isinstance(x, torch.device) else alias(x), tree)


def on_device(tree: Any, device: torch.device) -> Any:
    """Tensors of the CPU on the device: new memory from the allocator, no copy counted."""

    def moved(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        with silence():
            out = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
        alias(out).copy_(value)
        return out

    return tree_map(moved, tree)


def fill(outputs: Any, values: Any) -> None:
    """Write what the CPU computed into what the device's operator gave, tensor by tensor."""
    for out, value in zip(tree_flatten(outputs)[0], tree_flatten(values)[0], strict=False):
        if isinstance(out, Tensor) and isinstance(value, Tensor) and out.numel() and out.shape == value.shape:
            alias(out).copy_(value)


def unset(tensor: Tensor) -> Tensor:
    """Fresh memory, made recognisable: who reads it before it is written gets NaN or an index out of range."""
    if tensor.device.type == "cuda" and tensor.numel():
        kind = tensor.dtype
        floating = kind.is_floating_point or kind.is_complex
        info_max = 1 if kind == torch.bool else UNSET if floating else min(UNSET, torch.iinfo(kind).max)
        alias(tensor).fill_(float("nan") if floating else info_max)
    return tensor


def device_of(args: Any) -> torch.device:
    """The one device of all tensors with axes.

    Raises:
        RuntimeError: several, in torch's own words: for operators that are not run on CUDA's side.
    """
    tensors = [x for x in tree_flatten(args)[0] if isinstance(x, Tensor)]
    devices = {t.device for t in tensors if t.dim()} or {t.device for t in tensors}
    if len(devices) > 1:
        names = " and ".join(sorted(map(str, devices)))
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {names}!")
    return devices.pop()
