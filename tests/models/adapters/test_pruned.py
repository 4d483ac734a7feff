"""Pruned weights: the masks of torch and of the paper's code, their schedule, export, and exact resumption."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from tests.contracts.cases import AdapterCase
from workbench.core.errors import WorkbenchError
from workbench.models.adapters import PrunedAdapter

NOTHING_TRAINED = {"changes": "it has no parameters, and keeps all weights at first"}
CASES = {
    "": AdapterCase(excused=NOTHING_TRAINED),
    "movement": AdapterCase({"by": "movement"}, {"changes": "all weights are kept at first, whatever the scores are"}),
    "gate": AdapterCase({"by": "gate", "block": 3}),
}


def at(progress: float) -> Any:
    return SimpleNamespace(progress=progress, number=1, outputs={})


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.85])
def test_magnitudes_are_masked_as_by_torch(keep: float) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(13, 7)
    adapter = PrunedAdapter(linear, keep=keep)
    adapter.after_step(at(1.0))
    wanted = prune.L1Unstructured(amount=1 - keep).compute_mask(linear.weight, torch.ones_like(linear.weight))
    assert torch.equal(adapter.weight() != 0, wanted.bool())
    assert torch.equal(adapter.weight(), linear.weight * wanted)


def test_the_kept_share_falls_as_a_cube() -> None:
    adapter = PrunedAdapter(nn.Linear(100, 100), keep=0.2, since=0.1, until=0.6)
    shares = []
    for progress in (0.0, 0.1, 0.35, 0.6, 1.0):
        adapter.after_step(at(progress))
        shares.append(float((adapter.weight() != 0).double().mean()))
    assert shares == pytest.approx([1.0, 1.0, 0.2 + 0.8 * 0.5**3, 0.2, 0.2], abs=1e-3)


def test_movement_has_the_mask_and_the_gradients_of_the_paper_s_code() -> None:
    """A mask of the top scores whose backward passes the gradient on (`TopKBinarizer`)."""

    class TopK(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, scores: torch.Tensor, share: float) -> torch.Tensor:
            mask, (_, order) = scores.clone(), scores.flatten().sort(descending=True)
            kept, flat = int(share * scores.numel()), mask.flatten()
            flat[order[kept:]], flat[order[:kept]] = 0, 1
            return flat.view_as(scores)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            return gradient, None

    torch.manual_seed(0)
    linear, rows = nn.Linear(6, 4), torch.randn(5, 6)
    adapter = PrunedAdapter(linear, by="movement", keep=0.25)
    assert adapter.scores is not None
    nn.init.normal_(adapter.scores)
    adapter.after_step(at(1.0))
    adapter(rows, linear(rows)).square().sum().backward()
    assert adapter.scores.grad is not None
    assert linear.weight.grad is not None
    weight, scores = linear.weight.detach().requires_grad_(), adapter.scores.detach().requires_grad_()
    nn.functional.linear(rows, weight * TopK.apply(scores, 0.25), linear.bias).square().sum().backward()
    torch.testing.assert_close(adapter.scores.grad, scores.grad)
    torch.testing.assert_close(linear.weight.grad, weight.grad)


def test_gates_leave_out_whole_blocks_of_inputs() -> None:
    linear = nn.Linear(6, 2)
    adapter = PrunedAdapter(linear, by="gate", keep=0.34, block=2)
    assert adapter.scores is not None
    with torch.no_grad():
        adapter.scores.copy_(torch.tensor([0.5, -2.0, 1.0]))
    adapter.after_step(at(1.0))
    wanted = linear.weight * torch.tensor([0.0, 0.0, -2.0, -2.0, 0.0, 0.0])
    torch.testing.assert_close(adapter.weight(), wanted)
    for options in ({"by": "gate", "block": 4}, {"since": 0.7, "until": 0.6}):
        with pytest.raises(WorkbenchError, match=r"does not divide the 6 inputs|since below until"):
            PrunedAdapter(linear, **options)  # type: ignore[arg-type]


def test_shards_are_refused_as_whole_weights_are_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.models.adapters.is_spread", lambda weight: True)
    with pytest.raises(WorkbenchError, match="the adapter pruned ranks whole weights"):
        PrunedAdapter(nn.Linear(3, 4)).after_step(at(0.5))
