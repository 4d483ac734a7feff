"""How a module is cut for tensor parallelism (Shoeybi et al., Megatron-LM, arXiv:1909.08053, section 3).

Every rank of a tensor group computes some heads of each attention, and some features of each feed-forward network. A
module states here which of its linear layers and tensors are cut, and along which dimension. What a module does not
state is whole on every rank. `workbench.parallel.tensor_parallel` reads the statements and cuts the parameters; without
it the hooks of this file do nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor  # its import takes 0.4 s, which only sharded runs need


@dataclass(frozen=True)
class HeadRange:
    """The heads of an attention that this rank computes: `count` from `first` on, of `total`."""

    first: int
    count: int
    total: int


Blocks = int | tuple[int, ...]
"""The number of equal blocks of a tensor, or the shares of unequal ones: 8 heads of queries, 2 of keys, 2 of values."""


class CutDim(NamedTuple):
    """The dimension of a tensor along which it is cut: `blocks`, of each of which every rank has an equal part.

    A fused matrix of queries, keys and values has three blocks: the heads are cut inside each.
    """

    dim: int
    blocks: Blocks = 1

    def part(self, whole: Tensor, rank: int, ranks: int) -> Tensor:
        """The part of a tensor that a rank has: its parts of all blocks, one after another."""
        blocks = whole.split(self._sizes(whole.shape[self.dim]), self.dim)
        parts = [block.chunk(ranks, self.dim)[rank] for block in blocks]
        return torch.cat(parts, self.dim) if len(parts) > 1 else parts[0].contiguous()

    def joined(self, parts: Tensor, ranks: int) -> Tensor:
        """The tensor in its own order, from the parts of all ranks one after another."""
        of_ranks = parts.unflatten(self.dim, (ranks, -1))
        blocks = of_ranks.split(self._sizes(of_ranks.shape[self.dim + 1]), self.dim + 1)
        return torch.cat([block.flatten(self.dim, self.dim + 1) for block in blocks], self.dim)

    def _sizes(self, size: int) -> list[int]:
        """The sizes of the blocks of a dimension of this size."""
        shares = (1,) * self.blocks if isinstance(self.blocks, int) else self.blocks
        return [size * share // sum(shares) for share in shares]


@dataclass(frozen=True)
class TensorCuts:
    """The cuts of a module. Names are relative to it.

    Attributes:
        divided: the numbers that the ranks must divide, by their names in messages.
        columns: linear layers whose outputs are cut, with the blocks of the output.
        rows: linear layers whose inputs are cut, with the blocks of the input; their outputs are summed over the ranks.
        tensors: other parameters and buffers that are cut.
        summed: parameters that are whole on every rank and act on cut values: their gradients are summed.
        entering: those of `columns` that read values which are whole and did not pass `CutModule.entered`.
        features: dropouts of cut features, with the blocks of these.
        owns: modules whose own cuts do not apply, since this module computes with their layers.
        complete: whether the module has no other parameters, so that one without a statement is an error.
    """

    divided: Mapping[str, int] = field(default_factory=dict)
    columns: Mapping[str, Blocks] = field(default_factory=dict)
    rows: Mapping[str, Blocks] = field(default_factory=dict)
    tensors: Mapping[str, CutDim] = field(default_factory=dict)
    summed: tuple[str, ...] = ()
    entering: tuple[str, ...] = ()
    features: Mapping[str, Blocks] = field(default_factory=dict)
    owns: tuple[str, ...] = ()
    complete: bool = True


class CutModule:
    """Base of the modules that tensor parallelism cuts."""

    def tensor_cuts(self) -> TensorCuts:
        """The cuts of the module.

        Raises:
            WorkbenchError: it cannot be cut.
        """
        raise NotImplementedError(f"{type(self).__name__} must define tensor_cuts")

    def take_part(self, rank: int, ranks: int) -> None:
        """Compute the heads or features of one rank from now on."""
        return

    def entered(self, rows: Tensor) -> Tensor:
        """Rows as the module's cut layers read them, here unchanged. Every input of a cut layer passes it, in each
        forward: under tensor parallelism its gradient is summed over the ranks."""
        return rows

    def of_all_ranks(self, values: Tensor) -> Tensor:
        """Values [own heads, ...] -> those of all heads, here unchanged."""
        return values


def is_spread(tensor: Any) -> TypeGuard[DTensor]:
    """Whether a tensor is spread over ranks: a DTensor, of which there is none before its module is imported."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this rank holds, which shares its memory; a plain tensor itself."""
    return tensor.to_local() if is_spread(tensor) else tensor
