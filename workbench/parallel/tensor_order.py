"""The order of the elements of cut parameters: that of the ranks in a run, and the tensor's own in checkpoints.

A rank has a part of each block of a matrix (queries, keys and values; gate and value). In a run the parts of rank 0
come first, then those of rank 1 (`workbench.parallel.tensor_parallel`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from workbench.models.tensor_cut import CutDim, is_spread
from workbench.parallel.tensor_parallel import cut_parameters

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def tensor_ranks(parameter: DTensor) -> int:
    """The number of ranks over which a cut parameter is cut: the size of the last dimension of its mesh."""
    return int(parameter.device_mesh.size(parameter.device_mesh.ndim - 1))


def whole(parameter: DTensor, cut: CutDim) -> Tensor:
    """A cut parameter, or a state of its shape and mesh, in its own order; every rank calls it."""
    return cut.joined(_full(parameter), tensor_ranks(parameter))


def in_own_order(values: Tensor, cut: CutDim | None) -> Tensor:
    """A cut parameter, or a state of it, with the elements in the tensor's own order, as checkpoints store them. Other
    tensors are returned as they are. Every rank calls it."""
    if not _in_rank_order(values, cut):
        return values
    assert is_spread(values)
    assert cut is not None
    return _reordered(values, whole(values, cut))


def in_rank_order(values: Tensor, cut: CutDim | None) -> Tensor:
    """The inverse of `in_own_order`."""
    if not _in_rank_order(values, cut):
        return values
    assert is_spread(values)
    assert cut is not None
    ranks, full = tensor_ranks(values), _full(values)
    return _reordered(values, torch.cat([cut.part(full, rank, ranks) for rank in range(ranks)], cut.dim))


def _full(values: DTensor) -> Tensor:
    """The whole tensor. torch warns each rank of a gathering over two dimensions of a mesh, which is meant here."""
    advice = logging.getLogger("torch.distributed.tensor._redistribute")
    before = advice.level
    advice.setLevel(logging.ERROR)
    try:
        return values.full_tensor()
    finally:
        advice.setLevel(before)


def _in_rank_order(values: Tensor, cut: CutDim | None) -> bool:
    """Whether the order of the elements is that of the ranks, and another one than the tensor's own."""
    along = is_spread(values) and values.placements[-1].is_shard(cut.dim if cut is not None else None)
    return cut is not None and cut.blocks != 1 and along


def _reordered(values: Any, full: Tensor) -> Tensor:
    from torch.distributed.tensor import DTensor

    (chunk,) = values.__create_chunk_list__()
    own = full[tuple(slice(at, at + size) for at, size in zip(chunk.offsets, chunk.sizes, strict=True))].contiguous()
    mesh, placements, stride = values.device_mesh, values.placements, values.stride()
    return DTensor.from_local(own, mesh, placements, run_check=False, shape=values.shape, stride=stride)


def place_in_group(root: nn.Module) -> tuple[int, int]:
    """The number of this rank in its tensor group, and the number of ranks in it; (0, 1) where nothing is cut."""
    cuts = cut_parameters(root)
    for name, parameter in root.named_parameters():
        if name in cuts and is_spread(parameter):
            return (parameter.device_mesh.get_coordinate() or [0])[-1], tensor_ranks(parameter)
    return 0, 1
