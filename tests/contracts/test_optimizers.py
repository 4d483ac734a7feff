"""Contracts of the optimizers: their papers' formulas, their state through a checkpoint, a loss that falls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contracts.case_finder import case_of, cases_of, over
from tests.contracts.gradient_descent import Model, train
from tests.optimization.sharded_ranks import differences, on_ranks, spec_of
from tests.saved_checkpoints import saved
from workbench.optimization.factory import make_optimizer
from workbench.recipe.train_spec import GroupSpec, TrainSpec
from workbench.runs.checkpoint import restore
from workbench.runs.checkpoints import Checkpoints


def spec(name: str, **options: Any) -> TrainSpec:
    """Of a case; its options have no effect on the schedule."""
    part, case = cases_of("optimizer")[name]
    optimizer = {"optimizer": part, **case.options, **options}
    return TrainSpec(max_steps=9, global_batch_size=1, micro_batch_size=1, lr=0.1, optimizer=optimizer)


@over("optimizer")
def test_an_optimizer_follows_its_paper(name: str) -> None:
    formula = case_of("optimizer", name).formula
    model, plain = Model(), Model()
    optimizer = make_optimizer(model, spec(name, weight_decay=0.3))
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
            p.data = formula(p.data, p.grad.detach(), states[parameter_name], decay)
    for p, expected in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p, expected, atol=1e-5, rtol=1e-4)


@over("optimizer")
def test_state_by_name_continues_exactly(tmp_path: Path, name: str) -> None:
    whole, separated = Model(), Model()
    train(whole, make_optimizer(whole, spec(name)), range(6))
    optimizer = make_optimizer(separated, spec(name))
    train(separated, optimizer, range(3))
    path = saved(Checkpoints(tmp_path), separated, optimizer, {"step": 3})
    again = Model()
    regrouped = replace(spec(name), groups=[GroupSpec("grid", lr_factor=1.0, start_step=0, weight_decay=None)])
    optimizer = make_optimizer(again, regrouped)
    restore(path, again, optimizer)
    train(again, optimizer, range(3, 6))
    for p, expected in zip(again.parameters(), whole.parameters(), strict=True):
        assert torch.equal(p, expected)


@over("optimizer")
def test_no_step_waits_for_the_device(name: str) -> None:
    """On the meta device no number can be read: what asks for one, as torch's Adafactor does, raises."""
    model = Model().to("meta")
    optimizer = make_optimizer(model, spec(name, weight_decay=0.3))
    if optimizer.param_groups[0].get("fused"):
        pytest.skip("a fused step is one kernel, which the meta device lacks; it reads nothing on the host")
    for _ in range(2):
        for p in model.parameters():
            p.grad = torch.empty_like(p)
        optimizer.step()


def test_reading_a_number_on_the_meta_device_raises() -> None:
    p = torch.nn.Parameter(torch.empty(2, 3, device="meta"))
    p.grad = torch.empty_like(p)
    with pytest.raises(RuntimeError, match="meta"):
        torch.optim.Adafactor([p]).step()


@pytest.fixture(scope="module")
def on_two_ranks() -> Any:
    specs = {name: spec_of({"optimizer": part, **case.options}) for name, (part, case) in cases_of("optimizer").items()}
    return on_ranks(2, differences, specs, (2,), ("shard",))


@over("optimizer")
def test_shards_give_what_one_rank_gives(name: str, on_two_ranks: Any) -> None:
    """Parameters, state and the norm of gradients after steps with clipping, and a resumed run, on two ranks that hold
    shards; the statistics of all tensors take at most two collectives a step."""
    for found in on_two_ranks:
        assert max(found[name].parameters, found[name].norms, found[name].state) < 1e-6
        assert found[name].resumed
        assert max(found[name].collectives) <= 2
        assert set(found[name].clipping) == {1}


@over("optimizer")
def test_a_loss_falls(name: str) -> None:
    model = Model()
    optimizer = make_optimizer(model, replace(spec(name), lr=0.03))
    before = model.loss(0).item()
    train(model, optimizer, range(60))
    assert model.loss(0).item() < 0.5 * before
