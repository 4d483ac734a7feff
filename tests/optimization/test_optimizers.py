"""What a recipe may say of its optimizer, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from tests.contracts.gradient_descent import Model, train
from workbench.core.errors import WorkbenchError
from workbench.optimization.factory import make_optimizer
from workbench.recipe.train_spec import GroupSpec, TrainSpec

SPEC = TrainSpec(max_steps=9, global_batch_size=1, micro_batch_size=1, lr=0.1)


def spec(name: str, **options: Any) -> TrainSpec:
    return replace(SPEC, optimizer={"optimizer": name, **options})


def test_zeros_take_lambs_plain_step() -> None:
    model = Model()
    nn.init.zeros_(model.map.weight)
    train(model, make_optimizer(model, spec("lamb")), range(1))
    assert model.map.weight.isfinite().all()
    assert model.map.weight.abs().max().item() == pytest.approx(0.1, rel=1e-3)


def test_any_optimizer_of_torch_can_be_named() -> None:
    model = Model()
    optimizer = make_optimizer(model, spec("torch.optim:RAdam", betas=[0.8, 0.9]))
    assert isinstance(optimizer, torch.optim.RAdam)
    assert [group["betas"] for group in optimizer.param_groups] == [(0.8, 0.9)] * 2
    assert optimizer.param_groups[0]["lr"] == SPEC.lr


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (spec("adamw", lr=1e-3), r"train\.optimizer: lr is set by the run; state it in train\.lr"),
        (spec("adamw", params=[]), r"state it in train\.groups"),
        (spec("adam"), "'adamw'"),
        (spec("adamw", betas=[0.9]), r"train\.optimizer: optimizer 'adamw': betas = \[0\.9\]"),
        (
            spec("torch.optim:RMSprop", alpha=-1.0),
            r"'torch\.optim:RMSprop' refuses its options or parameters: Invalid alpha value",
        ),
        (spec("torch.nn:Linear"), r"derived from torch\.optim\.Optimizer"),
        (
            replace(spec("torch.optim:Rprop"), groups=[GroupSpec("map", weight_decay=0.1)]),
            "'torch.optim:Rprop' has no weight_decay",
        ),
    ],
)
def test_what_does_not_fit_is_refused(changed: TrainSpec, message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        make_optimizer(Model(), changed)
