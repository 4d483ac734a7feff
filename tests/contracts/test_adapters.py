"""Contracts of the adapters: what they begin as, rows that know nothing of each other, gradients, merging."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.contracts.finding import case_of, make, over
from workbench.errors import WorkbenchError
from workbench.models.network import initialise

SIZES = {"in_size": 6, "out_size": 5}


def adapter_of(name: str, *, trained: bool = True) -> Any:
    made = make("adapter", name, SIZES).eval()
    initialise(made, 0.02)
    for parameter in made.parameters() if trained else ():
        nn.init.normal_(parameter, std=0.5)
    return made


def rows(count: int) -> tuple[nn.Linear, torch.Tensor]:
    torch.manual_seed(1)
    return nn.Linear(6, 5), torch.randn(count, 6)


@over("adapter")
def test_an_adapter_begins_as_nothing(name: str) -> None:
    linear, given = rows(4)
    assert torch.equal(adapter_of(name, trained=False)(given, linear(given)), linear(given))


@over("adapter")
def test_an_adapter_changes_each_row_by_itself(name: str) -> None:
    linear, given = rows(4)
    made, adapter = linear(given), adapter_of(name)
    changed = adapter(given, made)
    assert changed.shape == made.shape
    assert not torch.allclose(changed, made)
    alone = torch.cat([adapter(given[i : i + 1], made[i : i + 1]) for i in range(4)])
    torch.testing.assert_close(alone, changed)
    assert adapter(given[:0], made[:0]).shape == (0, 5)


@over("adapter")
def test_all_of_an_adapter_learns(name: str) -> None:
    linear, given = rows(4)
    adapter = adapter_of(name)
    adapter(given, linear(given)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in adapter.parameters())


@over("adapter")
def test_an_adapter_is_merged_or_says_that_it_cannot_be(name: str) -> None:
    linear, given = rows(4)
    adapter = adapter_of(name)
    wanted = adapter(given, linear(given))
    if "merge" in case_of("adapter", name).excused:
        with pytest.raises(WorkbenchError, match="cannot be exported"):
            adapter.merge(linear)
        return
    adapter.merge(linear)
    torch.testing.assert_close(linear(given), wanted)
