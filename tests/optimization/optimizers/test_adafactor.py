"""The optimizer `adafactor`: its paper's formula as a plain loop, and torch's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.contracts.cases import OptimizerCase
from workbench.optimization import optimizers as adafactor_module
from workbench.optimization.optimizers import Adafactor


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


SHAPES = [(), (5,), (5,), (3, 4), (3, 4), (3, 4), (2, 3, 4), (2, 2, 3, 2), (64, 48)]


def test_state_and_updates_are_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scalars, vectors, matrices and more, some without a gradient, a group that starts late, gradients from tiny to
    large, weights from 0 on; stacked, and cut where not all of a shape are stacked."""
    monkeypatch.setattr(adafactor_module, "AT_ONCE", {"cpu": 24})
    ours, theirs = ([nn.Parameter(torch.zeros(s)) for s in SHAPES] for _ in range(2))
    draws = torch.Generator().manual_seed(0)
    for p, q in zip(ours, theirs, strict=True):
        q.data = p.data = torch.randn(p.shape, generator=draws) * (p.numel() != 5)
        q.data = p.data.clone()

    def groups(of: list[nn.Parameter]) -> list[dict[str, Any]]:
        return [{"params": of[::2], "lr": 0.3}, {"params": of[1::2], "weight_decay": 0.2}]

    one, other = Adafactor(groups(ours), lr=0.05), torch.optim.Adafactor(groups(theirs), lr=0.05)
    for step in range(8):
        for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
            p.grad = q.grad = None
            if not (i % 2 and step < 3) and (i + step) % 4:
                p.grad = torch.randn(p.shape, generator=draws) * 10.0 ** (step - 6)
                q.grad = p.grad.clone()
        one.step()
        other.step()
        for p, q in zip(ours, theirs, strict=True):
            torch.testing.assert_close(p, q, atol=1e-6, rtol=1e-6)
            assert one.state[p].keys() == other.state[q].keys()
            for name, kept in other.state[q].items():
                torch.testing.assert_close(one.state[p][name], kept, atol=1e-6, rtol=1e-6)
    assert len(one.state) == len(SHAPES)


def test_gradients_that_vanish_move_nothing() -> None:
    ours, theirs = (nn.Parameter(torch.ones(3, 4)) for _ in range(2))
    ours.grad, theirs.grad = torch.zeros(3, 4), torch.zeros(3, 4)
    ours.grad[1, 2] = theirs.grad[1, 2] = 1e-12  # below the smallest step: the update is smaller than its direction
    Adafactor([{"params": [ours]}], lr=0.1).step()
    torch.optim.Adafactor([theirs], lr=0.1).step()
    torch.testing.assert_close(ours, theirs, atol=1e-7, rtol=1e-7)
