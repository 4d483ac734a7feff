"""What optimizers keep, of parameters and of groups, goes into a checkpoint and comes back as it was."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

from tests.contracts.gradient_descent import Model, train
from workbench.core.errors import WorkbenchError
from workbench.optimization.optimizer_state import load_optimizer_state, optimizer_state


class Counting(torch.optim.Optimizer):
    """Keeps its counter in the groups, a Python number and a square matrix for each parameter."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                state["n"] = state.get("n", 0) + 1
                flat = parameter.grad.reshape(len(parameter), -1)
                state["square"] = state.get("square", 0) + flat @ flat.T
                scale = group["lr"] / group["step"] / (1 + state["square"].norm() * state["n"])
                parameter.data.add_(parameter.grad, alpha=-float(scale))


def groups(model: Model) -> list[dict[str, Any]]:
    return [{"params": [parameter]} for parameter in model.parameters()]


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


def test_an_optimizer_with_state_of_its_own_continues_exactly() -> None:
    whole, first, second = Model(), Model(), Model()
    train(whole, Counting(groups(whole), 0.1), range(6))
    interrupted = Counting(groups(first), 0.1)
    train(first, interrupted, range(3))
    second.load_state_dict(first.state_dict())
    resumed = Counting(groups(second), 0.1)
    load_optimizer_state(second, resumed, through_a_file(optimizer_state(first, interrupted)))
    train(second, resumed, range(3, 6))
    for (name, one), (_, other) in zip(whole.named_parameters(), second.named_parameters(), strict=True):
        assert torch.equal(one, other), name


def test_state_that_no_checkpoint_holds_is_reported_on_saving() -> None:
    model = Model()
    optimizer = Counting(groups(model), 0.1)
    optimizer.state[model.grid]["history"] = object()
    with pytest.raises(WorkbenchError, match=r"Counting keeps history = object of 'grid', which is in no checkpoint"):
        optimizer_state(model, optimizer)
