"""LAMB (You et al. 2020, "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", arXiv:1904.00962).

Algorithm 2, phi the identity, for each parameter tensor x with gradient g at its t-th update:

    m = b1 m + (1 - b1) g      v = b2 v + (1 - b2) g^2
    u = (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps) + weight_decay x
    x = x - lr |x| / |u| u

As in the authors' code, what has no weight decay by its role (`workbench.optimization.decay`: norms, biases, tables)
takes the plain step x - lr u; so does a tensor of zeros, or an update of zeros, whose ratio means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from workbench.options.bounds import Betas, Epsilon, LearningRate, NotNegative


class Lamb(torch.optim.Optimizer):
    """Adam's update with decoupled weight decay, scaled to the size of each parameter tensor; for large batches.

    Args:
        params: groups of parameters (given).
        lr: the peak learning rate (given).
        betas: decay of the two moments.
        eps: added to the root of the second moment.
        weight_decay: share of a weight that an update takes away before it is scaled.
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        lr: LearningRate,
        betas: Betas = [0.9, 0.999],  # noqa: B006  (read alone)
        eps: Epsilon = 1e-6,
        weight_decay: NotNegative = 0.01,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                self._update(parameters, group)
        return loss

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        updates = self._adam(parameters, group["betas"], group["eps"])
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        if group.get("decayed", True):
            torch._foreach_mul_(updates, _trust_ratios(parameters, updates))
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])

    def _adam(self, parameters: list[Tensor], betas: tuple[float, float], eps: float) -> list[Tensor]:
        """Adam's direction of every parameter; moves the moments."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter] = {
                    "step": torch.zeros(()),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
        first = [self.state[p]["exp_avg"] for p in parameters]
        second = [self.state[p]["exp_avg_sq"] for p in parameters]
        steps = [self.state[p]["step"].add_(1).item() for p in parameters]
        torch._foreach_lerp_(first, gradients, 1 - betas[0])
        torch._foreach_mul_(second, betas[1])
        torch._foreach_addcmul_(second, gradients, gradients, 1 - betas[1])
        roots = torch._foreach_sqrt(second)
        torch._foreach_div_(roots, [(1 - betas[1] ** t) ** 0.5 for t in steps])
        torch._foreach_add_(roots, eps)
        directions = torch._foreach_div(first, roots)
        torch._foreach_div_(directions, [1 - betas[0] ** t for t in steps])
        return list(directions)


def _trust_ratios(parameters: list[Tensor], updates: list[Tensor]) -> list[Tensor]:
    """|x| / |u| of every tensor, 1 where one of them is 0; no wait for the device."""
    sizes = zip(torch._foreach_norm(parameters), torch._foreach_norm(updates), strict=True)
    return [torch.where((x > 0) & (u > 0), x / u, torch.ones_like(x)) for x, u in sizes]
