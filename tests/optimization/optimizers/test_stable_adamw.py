"""The optimizer `stable_adamw`: its paper's formula as a plain loop, and a rate that falls where gradients leap."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.contracts.cases import OptimizerCase
from workbench.optimization.optimizers import StableAdamw


def stable_adamw(p: Tensor, g: Tensor, s: dict[str, Any], decay: float) -> Tensor:
    t = s["t"]
    one, two = (beta * (1 - beta ** (t - 1)) / (1 - beta**t) for beta in (0.9, 0.98))  # the paper's corrected betas
    s["m"], s["v"] = one * s["m"] + (1 - one) * g, two * s["v"] + (1 - two) * g * g
    rms = (g * g / s["v"].clamp_min(1e-6**2)).mean().sqrt().item()
    rate = 0.1 / max(1.0, rms)
    return p - rate * decay * p - rate * s["m"] / (s["v"].sqrt() + 1e-6)


CASE = OptimizerCase({"betas": [0.9, 0.98], "eps": 1e-6}, formula=stable_adamw)


def test_a_leap_of_the_gradients_does_not_move_more() -> None:
    """AdamW's step after a leap is several times the rate; this one's is at most a little more than the rate."""
    moved = {}
    for make in (StableAdamw, torch.optim.AdamW):
        p = nn.Parameter(torch.zeros(4))
        optimizer = make([{"params": [p]}], lr=1.0, betas=[0.9, 0.999], eps=1e-6, weight_decay=0.0)  # type: ignore[arg-type]
        for gradient in [1e-3] * 500 + [1.0]:
            before = p.detach().clone()
            p.grad = torch.full((4,), gradient)
            optimizer.step()
        moved[make.__name__] = (p.detach() - before).abs().max().item()
    assert moved["StableAdamw"] < 1.05 < 1.5 < moved["AdamW"]
