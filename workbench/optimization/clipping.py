"""The norm of all gradients, and clipping to it (Pascanu et al. 2013, arXiv:1211.5063).

Parameters may be whole, or shards over one or several meshes, in one list. The norm is that of the whole gradients: the
squares of shards are added over ranks, with one collective for each group of processes. Whole parameters count once, as
their gradients are equal on all ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from workbench.parallel.parameter_shards import Summand, cuts_of, everyone, is_sharded, local_parameters, summed


@torch.no_grad()
def clip_gradients(
    parameters: Iterable[nn.Parameter], clip_norm: float | None, of_rows: Sequence[Tensor] = ()
) -> Tensor:
    """The norm of the gradients before clipping [], on their device; with `clip_norm` they are scaled in place, so that
    their norm is at most that.

    Every rank has gradients of the same parameters.

    Args:
        of_rows: further gradients, of rows of tables that this rank alone holds; equally many on every rank.
    """
    trained = [p for p in parameters if p.grad is not None]
    local = local_parameters(trained)
    gradients = [p.grad for p in local if p.grad is not None]
    if not (of_rows or any(map(is_sharded, trained))):
        norm = torch.nn.utils.get_total_norm(gradients)
    else:
        norm = _norm_over_ranks(trained, gradients, of_rows)
    if clip_norm is not None:
        torch.nn.utils.clip_grads_with_norm_(local, clip_norm, norm)
        for rows in of_rows:  # by torch's factor
            rows.mul_((clip_norm / (norm + 1e-6)).clamp(max=1.0).to(rows.device))
    return norm


def _norm_over_ranks(trained: list[nn.Parameter], gradients: list[Tensor], of_rows: Sequence[Tensor]) -> Tensor:
    """The norm of whole gradients, from those of the shards and rows that this process holds."""
    alike: dict[tuple[dist.ProcessGroup, ...], list[Tensor]] = {}
    for parameter, gradient in zip(trained, gradients, strict=True):
        alike.setdefault(tuple(cut.group for cut in cuts_of(parameter)), []).append(gradient)
    found = [(torch.nn.utils.get_total_norm(those), groups) for groups, those in alike.items()]
    found += [(torch.linalg.vector_norm(rows), everyone()) for rows in of_rows]
    first = found[0][0]
    sums = summed([Summand(norm.to(first.device).double().square(), groups) for norm, groups in found])
    return torch.stack(sums).sum().sqrt().to(first.dtype)
