"""Contracts of the adapters: what they begin as, sequences that know nothing of each other, gradients, merging."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.contracts.adapter_places import MADE, Adapted
from tests.contracts.case_finder import case_of, cases_of, make, over
from workbench.components.building import find
from workbench.core.errors import WorkbenchError
from workbench.models.initialisation import initialise

EVERY = [0, 1, 2]


def adapted(name: str, *, trained: bool = True) -> tuple[Any, Adapted]:
    """An adapter and the module to which it is added."""
    adapts = find("adapter", cases_of("adapter")[name].part).adapts
    place = MADE[adapts]()
    made = make("adapter", name, adapts.sizes(place.module)).eval()
    initialise(made, 0.02)
    for parameter in made.parameters() if trained else ():
        nn.init.normal_(parameter, std=0.5)
    return made, place


def changed(adapter: Any, place: Adapted, sequences: list[int]) -> torch.Tensor:
    given = place.given(sequences)
    return place.rows(adapter.act(place.module, (given,), place.module(given)))


def unchanged(place: Adapted) -> torch.Tensor:
    return place.rows(place.module(place.given(EVERY)))


@over("adapter", "begins")
def test_an_adapter_begins_as_nothing(name: str) -> None:
    adapter, place = adapted(name, trained=False)
    assert torch.equal(changed(adapter, place, EVERY), unchanged(place))


@over("adapter", "changes")
def test_an_adapter_changes_each_sequence_by_itself(name: str) -> None:
    adapter, place = adapted(name)
    found = changed(adapter, place, EVERY)
    assert not torch.allclose(found, unchanged(place))
    alone = torch.cat([changed(adapter, place, [n]) for n in EVERY])
    torch.testing.assert_close(alone, found)


@over("adapter")
def test_all_of_an_adapter_learns(name: str) -> None:
    adapter, place = adapted(name)
    changed(adapter, place, EVERY).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in adapter.parameters())


@over("adapter")
def test_an_adapter_is_merged_or_says_that_it_cannot_be(name: str) -> None:
    adapter, place = adapted(name)
    wanted = changed(adapter, place, EVERY)
    excuse = case_of("adapter", name).excused.get("merge")
    if excuse is not None and excuse.startswith("in part"):
        assert adapter.merge(place.module)  # says what is lost
        torch.testing.assert_close(unchanged(place), wanted, rtol=0.05, atol=0.05)
        return
    if excuse is not None:
        with pytest.raises(WorkbenchError, match="cannot be exported"):
            adapter.merge(place.module)
        return
    adapter.merge(place.module)
    torch.testing.assert_close(unchanged(place), wanted)
