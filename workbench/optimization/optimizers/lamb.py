"""LAMB (You et al. 2020, "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", arXiv:1904.00962).

Algorithm 2, phi the identity, for each parameter tensor x with gradient g at its t-th update:

    m = b1 m + (1 - b1) g      v = b2 v + (1 - b2) g^2
    u = (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps) + weight_decay x
    x = x - lr |x| / |u| u

As in the authors' code, what has no weight decay by its role (`workbench.optimization.decay`: norms, biases, tables)
takes the plain step x - lr u; so does a tensor of zeros, or an update of zeros, whose ratio means nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from workbench.optimization.moments import Moments, directions


class Lamb(Moments):
    """LAMB (You et al., arXiv:1904.00962): Adam with decoupled weight decay, scaled to the norm of each parameter
    tensor, for large batches.

    Its options are those of `workbench.optimization.moments.Moments`.
    """

    def update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        updates = directions(*self.moved(parameters, group["betas"]), group["eps"])
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        if group.get("decayed", True):
            torch._foreach_mul_(updates, _trust_ratios(parameters, updates))
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])


def _trust_ratios(parameters: list[Tensor], updates: list[Tensor]) -> list[Tensor]:
    """|x| / |u| of every tensor, 1 where one of them is 0; no wait for the device."""
    x, u = (torch.stack(torch._foreach_norm(tensors)) for tensors in (parameters, updates))
    return list(torch.where((x > 0) & (u > 0), x / u, torch.ones_like(x)).unbind())
