"""StableAdamW (Wortsman et al. 2023, "Stable and low-precision training for large-scale vision-language models",
arXiv:2304.13013, algorithm 2): AdamW whose rate is lowered where the second moment has fallen behind the gradients.

For each parameter tensor x with gradient g, and moments m and v without the bias of their first values:

    RMS = sqrt(mean(g^2 / max(v, eps^2)))      lr' = lr / max(1, RMS)
    x = x - lr' (weight_decay x + m / (sqrt(v) + eps))

The clipping is Adafactor's (arXiv:1804.04235, section 6), by tensor. Gradients need no clipping beside it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from workbench.optimization.moments import Moments, directions


class StableAdamw(Moments):
    """StableAdamW (Wortsman et al., arXiv:2304.13013, algorithm 2): AdamW with Adafactor's update clipping, for large
    learning rates.

    Its options are those of `workbench.optimization.moments.Moments`.
    """

    def update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        first, second = self.moved(parameters, group["betas"])
        excess = torch._foreach_clamp_min(second, group["eps"] ** 2)
        gradients = [p.grad for p in parameters if p.grad is not None]
        ratios = torch._foreach_div(torch._foreach_mul(gradients, gradients), excess)
        excesses = torch.stack([ratio.mean() for ratio in ratios]).sqrt_().clamp_min_(1.0)
        rates = list((group["lr"] / excesses).unbind())
        updates = directions(first, second, group["eps"])
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        torch._foreach_mul_(updates, rates)
        torch._foreach_sub_(parameters, updates)
