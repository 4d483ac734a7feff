"""The optimizer `adamw`: its paper's formula as a plain loop."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tests.contracts.cases import OptimizerCase


def adamw(p: Tensor, g: Tensor, s: dict[str, Any], decay: float) -> Tensor:
    s["m"], s["v"] = 0.9 * s["m"] + 0.1 * g, 0.99 * s["v"] + 0.01 * g * g
    step = s["m"] / (1 - 0.9 ** s["t"]) / ((s["v"] / (1 - 0.99 ** s["t"])).sqrt() + 1e-6)
    return p * (1 - 0.1 * decay) - 0.1 * step


CASE = OptimizerCase({"betas": [0.9, 0.99], "eps": 1e-6}, formula=adamw)
