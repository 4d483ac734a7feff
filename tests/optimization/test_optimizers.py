"""Optimizers against plain loops over their papers' formulas, their state through a checkpoint, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from workbench.errors import WorkbenchError
from workbench.optimization.building import make_optimizer
from workbench.parts.building import short_names
from workbench.recipe.spec import GroupSpec, TrainSpec
from workbench.runs.checkpoint import Checkpoints, restore

SPEC = TrainSpec(max_steps=9, global_batch_size=1, micro_batch_size=1, lr=0.1)
NAMES = short_names("optimizer")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.map = nn.Linear(4, 3)
        self.grid = nn.Parameter(torch.randn(2, 3, 4))

    def loss(self, step: int) -> Tensor:
        rows = torch.randn(5, 4, generator=torch.Generator().manual_seed(step))
        return (self.map(rows) - rows @ (self.grid[0] + 2 * self.grid[1].tanh()).T).square().sum()


def spec(name: str, **options: Any) -> TrainSpec:
    return replace(SPEC, optimizer={"optimizer": name, **options})


def train(model: Model, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        model.loss(step).backward()
        optimizer.step()


def adamw(p: Tensor, g: Tensor, s: dict[str, Any], decay: float) -> Tensor:
    s["m"], s["v"] = 0.9 * s["m"] + 0.1 * g, 0.99 * s["v"] + 0.01 * g * g
    step = s["m"] / (1 - 0.9 ** s["t"]) / ((s["v"] / (1 - 0.99 ** s["t"])).sqrt() + 1e-6)
    return p * (1 - 0.1 * decay) - 0.1 * step


def lamb(p: Tensor, g: Tensor, s: dict[str, Any], decay: float) -> Tensor:
    s["m"], s["v"] = 0.9 * s["m"] + 0.1 * g, 0.99 * s["v"] + 0.01 * g * g
    u = s["m"] / (1 - 0.9 ** s["t"]) / ((s["v"] / (1 - 0.99 ** s["t"])).sqrt() + 1e-6) + decay * p
    ratio = p.norm() / u.norm() if decay else torch.ones(())
    return p - 0.1 * ratio * u


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


FORMULAS: dict[str, Callable[..., Tensor]] = {"adamw": adamw, "lamb": lamb, "adafactor": adafactor}


@pytest.mark.parametrize("name", NAMES)
def test_an_optimizer_follows_its_paper(name: str) -> None:
    options = {"weight_decay": 0.3} | ({} if name == "adafactor" else {"betas": [0.9, 0.99], "eps": 1e-6})
    model, plain = Model(), Model()
    optimizer = make_optimizer(model, spec(name, **options))
    train(model, optimizer, range(6))
    states: dict[str, dict[str, Any]] = {
        n: {"t": 0, "m": 0 * p.data, "v": 0 * p.data} for n, p in plain.named_parameters()
    }
    for step in range(6):
        plain.zero_grad()
        plain.loss(step).backward()
        for parameter_name, p in plain.named_parameters():
            assert p.grad is not None
            states[parameter_name]["t"] += 1
            decay = 0.0 if parameter_name == "map.bias" else 0.3
            p.data = FORMULAS[name](p.data, p.grad.detach(), states[parameter_name], decay)
    for p, expected in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_state_by_name_goes_on_exactly(tmp_path: Path, name: str) -> None:
    whole, parted = Model(), Model()
    train(whole, make_optimizer(whole, spec(name)), range(6))
    optimizer = make_optimizer(parted, spec(name))
    train(parted, optimizer, range(3))
    path = Checkpoints(tmp_path).save(parted, optimizer, {"step": 3})
    again = Model()
    regrouped = replace(spec(name), groups=[GroupSpec("grid", lr_factor=1.0, start_step=0, weight_decay=None)])
    optimizer = make_optimizer(again, regrouped)
    restore(path, again, optimizer)
    train(again, optimizer, range(3, 6))
    for p, expected in zip(again.parameters(), whole.parameters(), strict=True):
        assert torch.equal(p, expected)


@pytest.mark.parametrize("name", NAMES)
def test_a_loss_falls(name: str) -> None:
    model = Model()
    optimizer = make_optimizer(model, replace(spec(name), lr=0.03))
    before = model.loss(0).item()
    train(model, optimizer, range(60))
    assert model.loss(0).item() < 0.5 * before


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
        (spec("adamw", lr=1e-3), r"train\.optimizer: lr is given to it; state it in train\.lr"),
        (spec("adamw", params=[]), r"state it in train\.groups"),
        (spec("adam"), "'adamw'"),
        (spec("adamw", betas=[0.9]), r"train\.optimizer: optimizer 'adamw': betas = \[0\.9\]"),
        (spec("torch.nn:Linear"), r"derived from torch\.optim\.Optimizer"),
        (
            replace(spec("torch.optim:Rprop"), groups=[GroupSpec("map", weight_decay=0.1)]),
            "'torch.optim:Rprop' knows no weight_decay",
        ),
    ],
)
def test_what_does_not_fit_is_refused(changed: TrainSpec, message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        make_optimizer(Model(), changed)
