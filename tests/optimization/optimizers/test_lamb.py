"""The optimizer `lamb`: its paper's formula as a plain loop."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.contracts.cases import OptimizerCase


def lamb(p: Tensor, g: Tensor, s: dict[str, Any], decay: float) -> Tensor:
    s["m"], s["v"] = 0.9 * s["m"] + 0.1 * g, 0.99 * s["v"] + 0.01 * g * g
    u = s["m"] / (1 - 0.9 ** s["t"]) / ((s["v"] / (1 - 0.99 ** s["t"])).sqrt() + 1e-6) + decay * p
    ratio = p.norm() / u.norm() if decay else torch.ones(())
    return p - 0.1 * ratio * u


CASE = OptimizerCase({"betas": [0.9, 0.99], "eps": 1e-6}, formula=lamb)
