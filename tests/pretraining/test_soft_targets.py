"""Targets of which a share is what a moving average of the network says."""

from __future__ import annotations

import math

import pytest
import torch

from workbench.pretraining.objective import SoftTargets, soft_cross_entropy

INF = float("inf")


def test_the_loss_is_the_formula() -> None:
    torch.manual_seed(0)
    logits, taught, labels = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4), torch.tensor([2, 0, 1])
    with torch.no_grad():
        logits[1, 3] = taught[1, 3] = -INF
    loss = soft_cross_entropy(logits, labels, taught, 0.3)
    wanted = 0.0
    for i in range(3):
        candidates = [c for c in range(4) if (i, c) != (1, 3)]
        p, q = ({c: math.exp(rows[i, c].item()) for c in candidates} for rows in (logits, taught))
        for c in candidates:
            target = 0.7 * (c == int(labels[i])) + 0.3 * q[c] / sum(q.values())
            wanted -= target * math.log(p[c] / sum(p.values()))
    assert loss.item() == pytest.approx(wanted, rel=1e-5)
    torch.testing.assert_close(soft_cross_entropy(logits, labels, taught, torch.full((3,), 0.3)), loss)
    loss.backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert logits.grad[1, 3] == 0


@pytest.mark.parametrize(
    ("ramp", "progress", "share"), [(0.0, 0.0, 0.4), (0.5, 0.0, 0.0), (0.5, 0.25, 0.2), (0.5, 0.5, 0.4), (0.5, 1, 0.4)]
)
def test_the_share_rises(ramp: float, progress: float, share: float) -> None:
    assert SoftTargets("slow", 0.4, ramp).share_at(progress) == pytest.approx(share)
