"""The optimizer `adafactor`: its paper's formula as a plain loop."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tests.contracts.cases import OptimizerCase


def adafactor(p: Tensor, g: Tensor, s: dict[str, Any], decay: float) -> Tensor:
    t = s["t"]
    beta, rate, size = 1 - t**-0.8, min(0.1, t**-0.5), max(1e-3, float(p.square().mean().sqrt()))
    squares = g * g
    if p.ndim > 1:
        s["r"] = beta * s.get("r", 0) + (1 - beta) * squares.mean(-1, keepdim=True)
        s["c"] = beta * s.get("c", 0) + (1 - beta) * squares.mean(-2, keepdim=True)
        v = s["r"] @ s["c"] / s["r"].mean(-2, keepdim=True)
    else:
        s["v"] = v = beta * s["v"] + (1 - beta) * squares
    u = g / v.sqrt()
    return p * (1 - 0.1 * decay) - rate * size * u / max(1.0, float(u.square().mean().sqrt()))


CASE = OptimizerCase({}, formula=adafactor)
