"""Bottleneck adapters: the formula, what they begin as, and that they cannot be merged."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.contracts.cases import AdapterCase
from tests.models.adapters.adapter_runs import batch, network, trained
from workbench.core.errors import WorkbenchError
from workbench.models.adaptation import merge
from workbench.models.adapters import BottleneckAdapter

CASE = AdapterCase({"size": 3}, {"merge": "its function is not linear"})
HOULSBY = {"adapter": "bottleneck", "targets": ["layers.*.output", "layers.*.outer"], "size": 3}


def test_the_change_is_the_formula() -> None:
    torch.manual_seed(0)
    adapter, given, made = BottleneckAdapter(4, size=3, function="tanh"), torch.randn(5, 7), torch.randn(5, 4)
    down, up = adapter.down, adapter.up
    wanted = made + torch.tanh(made @ down.weight.T + down.bias) @ up.weight.T + up.bias
    torch.testing.assert_close(adapter(given, made), wanted)
    adapter.initialise(0.02)
    assert torch.equal(adapter(given, made), made)
    assert down.weight.any()


def test_both_sublayers_of_each_layer_are_adapted() -> None:
    plain, adapted = network(), network([HOULSBY])
    assert torch.equal(adapted(batch())["text"], plain(batch())["text"])
    assert len(adapted.adapters[0]) == 4
    trained(adapted)
    changed = adapted(batch())["text"]
    assert not torch.allclose(changed, plain(batch())["text"])
    changed.square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in adapted.adapters.parameters())


def test_it_cannot_be_merged() -> None:
    with pytest.raises(WorkbenchError, match="cannot be exported"):
        merge(network([HOULSBY]))


def test_several_kinds_at_once() -> None:
    made = network([HOULSBY, {"adapter": "lora", "targets": ["layers.*.output"]}])
    names = [name for name, module in made.named_modules() if isinstance(module, nn.Linear) and "adapters" in name]
    assert len(names) == 2 * (4 + 2)
