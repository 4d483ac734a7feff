"""Functions that run again in the backward."""

from __future__ import annotations

import pytest
import torch

from workbench.models.checkpointing import recomputed


def test_it_runs_twice_and_gives_the_same_gradient() -> None:
    calls: list[int] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x.sin().exp()

    x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
    recomputed(function, x).sum().backward()
    y.sin().exp().sum().backward()
    assert len(calls) == 2
    assert torch.equal(x.grad, y.grad)  # type: ignore[arg-type]


def test_an_error_leaves_no_hook_behind() -> None:
    calls: list[int] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom") as held:
        recomputed(function, torch.ones(3, requires_grad=True))
    x = torch.ones(3, requires_grad=True)
    (x * x).sum().backward()
    assert held.value is not None, "its traceback lives"
    assert len(calls) == 1


def test_an_error_of_the_second_run_is_raised() -> None:
    calls: list[int] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError("boom")
        return x * x

    out = recomputed(function, torch.ones(3, requires_grad=True))
    with pytest.raises(RuntimeError, match="boom"):
        out.sum().backward()
