"""Scales of a linear layer: the formula of (IA)^3, merged, and a run that trains them on another run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import workbench
from tests.contracts.cases import AdapterCase
from tests.models.adapters.adapter_runs import adapting, batch, network
from tests.training.conftest import make_recipe, world_folder  # noqa: F401 - fixtures
from workbench.cli.export import export
from workbench.core.errors import WorkbenchError
from workbench.models.adaptation import merge
from workbench.models.adapters import ScalesAdapter
from workbench.recipe.reading import load_recipe
from workbench.training.verify_resume import verify_resume

CASES = {"": AdapterCase(), "inputs": AdapterCase({"of": "inputs"})}


def test_the_output_is_the_formula() -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(6, 4), torch.randn(5, 6)
    for of, width in (("outputs", 4), ("inputs", 6)):
        scales = ScalesAdapter(linear, of)  # type: ignore[arg-type]
        nn.init.normal_(scales.scale)
        assert scales.scale.shape == (width,)
        found = scales(x, linear(x))
        w = linear.weight.double()
        wanted = x.double() @ (w * scales.scale).T if of == "inputs" else (x.double() @ w.T) * scales.scale
        wanted = wanted + linear.bias * (1 if of == "inputs" else scales.scale)
        torch.testing.assert_close(found.double(), wanted, rtol=0, atol=1e-5)


@torch.no_grad()
def test_an_adapter_before_them_is_kept_or_refused() -> None:
    lora, outputs = {"adapter": "lora", "targets": ["layers.*.outer"]}, {"adapter": "scales", "targets": ["*.outer"]}
    plain, both = network([lora]), network([lora, outputs])
    for made in (plain, both):
        torch.manual_seed(1)
        for parameter in made.adapters[0].parameters():
            parameter.normal_()
    assert not torch.allclose(both(batch())["text"], network()(batch())["text"])
    torch.testing.assert_close(both(batch())["text"], plain(batch())["text"])
    inputs = {**outputs, "of": "inputs"}
    for erasing in (inputs, {"adapter": "pruned", "targets": ["*.outer"]}):
        with pytest.raises(WorkbenchError, match=r"adapt\[1\]: .* erases what the adapter 0 of the same module adds"):
            network([lora, erasing])
    first, scaled = network([inputs, lora]), network([inputs])
    for parameter in first.adapters.parameters():
        parameter.normal_()
    assert not torch.allclose(first(batch())["text"], scaled(batch())["text"])
    wanted = first.eval()(batch())["text"]
    merge(first)
    torch.testing.assert_close(first(batch())["text"], wanted)


def test_a_run_exports_them_in_its_weights(make_recipe: Callable[..., Path], tmp_path: Path) -> None:  # noqa: F811
    adapter = {"adapter": "scales", "of": "inputs", "targets": ["layers.*.outer"]}
    _, adapted = adapting(make_recipe, tmp_path, adapter)
    assert verify_resume(load_recipe(str(make_recipe(adapted))), tmp_path, steps=4).equal
    export(tmp_path / "interrupted", tmp_path / "exported", "bert")
    ours, theirs = workbench.load(tmp_path / "interrupted"), workbench.load(tmp_path / "exported")
    (scale, *_) = (each.scale for each in ours.torch.network().adapters[0].values())  # type: ignore[operator]
    assert not torch.equal(scale, torch.ones_like(scale))
    states = [made.torch.network().eval()(batch())["text"] for made in (ours, theirs)]
    torch.testing.assert_close(states[1], states[0], rtol=1e-5, atol=1e-5)
