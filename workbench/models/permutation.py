"""Permutations of rows: the gradient is a selection too, and no scattered sum."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from workbench.sequences.transfer import integers_on_device


def select(values: Tensor, index: Tensor, inverse: Tensor, complete: bool = True) -> Tensor:
    """values[index], where `inverse` has the place in the result of each row of the values.

    Args:
        values: [rows, ...].
        index: [places]; unused places, as those of padding, may name any row.
        inverse: [rows], -1 for a row that is in no used place, unless `complete`.
    """
    if not (torch.is_grad_enabled() and values.requires_grad):
        return values.index_select(0, index)
    selected: Tensor = _Select.apply(values, index, inverse, complete)
    return selected


class _Select(torch.autograd.Function):
    """Row selection whose gradient is the selection by the inverse (-1 there: no gradient)."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, index: Tensor, inverse: Tensor, complete: bool) -> Tensor:
        ctx.save_for_backward(inverse)
        ctx.complete = complete
        return values.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (inverse,) = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        if ctx.complete:
            return gradient.index_select(0, inverse), None, None, None
        picked = gradient.index_select(0, inverse.clamp_min(0))
        picked *= (inverse >= 0).to(picked.dtype).view(-1, *([1] * (picked.dim() - 1)))
        return picked, None, None, None


def padded_groups(rows: Tensor, counts: Tensor, longest: int | None = None, fill: float = 0.0) -> tuple[Tensor, Tensor]:
    """Rows of several groups, one group after the other, as a grid, and a mask of the places that are rows.

    Args:
        rows: [rows, ...].
        counts: rows of each group [groups], on the host.
        longest: width of the grid; by default that of the largest group, and at least 1.
        fill: the value of places without a row.

    Returns:
        [groups, longest, ...] and [groups, longest].
    """
    if longest is None:
        longest = int(counts.max()) if len(counts) else 1
    places = torch.arange(longest)
    there = places < counts[:, None]
    numbers = torch.where(there, (counts.cumsum(0) - counts)[:, None] + places, -1)
    index, inverse = integers_on_device([numbers, there.flatten().nonzero().squeeze(1)], rows.device)
    there = index >= 0
    if not len(rows):
        return rows.new_full((*index.shape, *rows.shape[1:]), fill) + rows.sum() * 0, there  # keeps it in the graph
    grid = select(rows, index.clamp_min(0).flatten(), inverse).unflatten(0, index.shape)
    return torch.where(there.view(*index.shape, *[1] * (rows.dim() - 1)), grid, fill), there


def inverse_of(order: Tensor) -> Tensor:
    """The place of each row in a permutation [rows]."""
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(len(order), device=order.device)
    return inverse
