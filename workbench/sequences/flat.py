"""Tensors one after another in one buffer, which is sent, pinned and copied to a device as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

ALIGNMENT = 64
"""Bytes between the beginnings of tensors: a cache line, and more than any vector load of a device needs."""


class FlatTensor(NamedTuple):
    """A tensor in a buffer: its dtype, shape and strides, and the count of numbers of this dtype before it."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    before: int

    @classmethod
    def of(cls, tensor: Tensor) -> FlatTensor:
        """The layout of a tensor in its own memory."""
        return cls(tensor.dtype, tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))


def can_lie_flat(tensor: Tensor) -> bool:
    """Whether a tensor is plain data: no gradient, no layout or class of its own, in the host's memory."""
    plain = type(tensor) is Tensor and tensor.layout is torch.strided and tensor.device.type == "cpu"
    return plain and not (tensor.requires_grad or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())


def laid_out(tensors: Sequence[Tensor]) -> tuple[list[FlatTensor], int]:
    """The places of these contiguous tensors in a buffer, and its size in bytes."""
    parts, size = [], 0
    for tensor in tensors:
        parts.append(FlatTensor.of(tensor)._replace(before=size // tensor.itemsize))
        size += padded(tensor.nbytes)
    return parts, size


def padded(size: int) -> int:
    """The bytes that a tensor of `size` bytes takes in a buffer."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def views(buffer: Tensor, parts: Sequence[FlatTensor]) -> list[Tensor]:
    """The tensors in a buffer [bytes].

    Each has a version counter of its own (`data`): a write to one field must not make autograd believe that the others
    were written to.
    """
    whole = {dtype: buffer.view(dtype) for dtype in {part.dtype for part in parts}}
    return [whole[part.dtype].as_strided(part.shape, part.stride, part.before).data for part in parts]


def flattened(tensors: Sequence[Tensor], *, pin: bool) -> tuple[Tensor, list[Tensor]]:
    """A buffer [bytes] that holds the values of these tensors, pinned if asked for, and the tensors in it."""
    tensors = [tensor.contiguous() for tensor in tensors]
    parts, size = laid_out(tensors)
    buffer = torch.empty(size, dtype=torch.uint8, pin_memory=pin)
    held = views(buffer, parts)
    for place, tensor in zip(held, tensors, strict=True):
        place.copy_(tensor)
    return buffer, held


def moved_together(
    tensors: Sequence[Tensor], device: torch.device, buffer: Tensor | None = None
) -> tuple[list[Tensor], Tensor]:
    """These tensors on a device, by one copy of their buffer, and that buffer there. Tensors that cannot be in a buffer
    are copied one by one.

    Args:
        buffer: their buffer here; allocated where there is none.
    """
    flat = {id(t): t for t in tensors if can_lie_flat(t) and (buffer is None or _lies_in(t, buffer))}
    held = list(flat.values())
    if buffer is None:
        buffer, held = flattened(held, pin=device.type == "cuda")
    there = buffer.to(device, non_blocking=True)
    moved = dict(zip(flat, views(there, [FlatTensor.of(t) for t in held]), strict=True))
    return [moved[id(t)] if id(t) in moved else t.to(device, non_blocking=True) for t in tensors], there


def _lies_in(tensor: Tensor, buffer: Tensor) -> bool:
    return tensor.untyped_storage().data_ptr() == buffer.untyped_storage().data_ptr()
