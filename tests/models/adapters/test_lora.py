"""LoRA: the formula, merging, and a run that trains it on another run: saved alone, exported merged."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import workbench
from tests.contracts.cases import AdapterCase
from tests.models.adapters.adapter_runs import adapting, batch, last, network, trained
from tests.training.conftest import make_recipe, world_folder  # noqa: F401 - fixtures
from workbench.cli.export import export
from workbench.core.errors import WorkbenchError
from workbench.interop.checkpoint_files import find_files
from workbench.interop.checkpoint_reader import read_checkpoint_folder
from workbench.models.adaptation import merge
from workbench.models.adapters import LoraAdapter
from workbench.models.network import Network
from workbench.recipe.reading import load_recipe
from workbench.runs.names import FROZEN, MODEL
from workbench.runs.weights import read_weights
from workbench.training.pretrain import pretrain
from workbench.training.verify_resume import verify_resume

CASES = {"": AdapterCase(), "wide": AdapterCase({"rank": 7, "alpha": 1.0, "dropout": 0.3})}
LORA = {"adapter": "lora", "targets": ["layers.*.qkv", "layers.1.*.inner"], "rank": 2}


def test_the_change_is_the_formula() -> None:
    torch.manual_seed(0)
    linear, lora = nn.Linear(5, 3), LoraAdapter(5, 3, rank=2, alpha=6.0)
    lora.initialise(0.02)
    rows = torch.randn(4, 5)
    assert torch.equal(lora(rows, linear(rows)), linear(rows))
    assert lora.down.weight.any()
    nn.init.normal_(lora.up.weight)
    changed = nn.functional.linear(rows, linear.weight + 3.0 * lora.up.weight @ lora.down.weight, linear.bias)
    torch.testing.assert_close(lora(rows, linear(rows)), changed)
    made = lora(rows, linear(rows))
    lora.merge(linear)
    torch.testing.assert_close(linear(rows), made)


def test_an_adapted_network_begins_as_it_is_and_trains_its_adapters_alone() -> None:
    plain, adapted = network(), network([LORA])
    wanted = plain(batch())["text"]
    assert torch.equal(adapted(batch())["text"], wanted)
    names = [name for name, parameter in adapted.named_parameters() if parameter.requires_grad]
    assert len(names) == 6
    assert all(name.startswith("adapters.0.layers:") for name in names)
    trained(adapted)
    changed = adapted(batch())["text"]
    assert (changed - wanted).abs().max() > 0.1
    changed.square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in adapted.adapters.parameters())
    merge(adapted)
    torch.testing.assert_close(adapted(batch())["text"], changed, rtol=1e-5, atol=1e-5)
    assert adapted.state_dict().keys() == plain.state_dict().keys()


def test_a_copy_has_adapters_of_its_own() -> None:
    one = network([LORA])
    other = copy.deepcopy(one)
    before = other(batch())["text"]
    trained(one)
    assert torch.equal(other(batch())["text"], before)
    trained(other)
    assert not torch.allclose(other(batch())["text"], before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": ["layers.*.qvk"]}, r"model\.adapt\[0\]\.targets: 'layers\.\*\.qvk' matches no linear map.*Some: "),
        ({"targets": []}, r"model\.adapt\[0\].*targets = \[\]"),
        ({"adapter": "lara"}, "unknown adapter 'lara'.*Did you mean 'lora'"),
        ({"rank": 0}, "rank = 0; allowed: a whole number from 1"),
        ({"ranks": 1}, "unknown option 'ranks'.*Did you mean 'rank'"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        network([{**LORA, **change}])


def test_a_run_on_a_run_saves_what_it_trains_alone(
    make_recipe: Callable[..., Path],  # noqa: F811
    tmp_path: Path,
) -> None:
    base, adapted = adapting(make_recipe, tmp_path, LORA)
    recipe = load_recipe(str(make_recipe(adapted)))
    assert verify_resume(recipe, tmp_path, steps=4).equal
    run = tmp_path / "interrupted"
    saved = set(read_weights(last(run) / MODEL))
    assert {name.split(".")[0] for name in saved} == {"heads", "networks"}
    assert all(name.startswith(("networks.main.adapters.0.", "heads.mlm.")) for name in saved)
    assert (run / FROZEN).samefile(last(base) / MODEL)
    weights, loaded = read_weights(last(base) / MODEL), workbench.load(run)
    for name, tensor in loaded.torch.network().state_dict().items():
        assert name.startswith("adapters.") or torch.equal(tensor, weights[f"networks.main.{name}"])

    def tuned(tree: dict[str, Any]) -> None:
        adapted(tree)
        tree["model"] |= {"init_from": str(run), "poolers": ["text"]}  # a new pooler must learn

    further = load_recipe(str(make_recipe(tuned, name="second")))
    second = pretrain(further, tmp_path / "second", until=2)
    assert (second / FROZEN).samefile(last(base) / MODEL), "one file, through the run between too"
    assert "networks.main.poolers.text.dense.weight" in read_weights(last(second) / MODEL)

    shutil.rmtree(base)
    pretrain(further, second)
    export(run, tmp_path / "exported", "bert")
    files = find_files(tmp_path / "exported")
    assert files is not None
    exported = Network(recipe.networks["main"], vocab_size=loaded.tokenizer.vocab_size)  # type: ignore[union-attr]
    exported.load_state_dict(read_checkpoint_folder(files).tensors, strict=False)
    assert not [name for name in load_file(tmp_path / "exported" / "model.safetensors") if "adapters" in name]
    states = [made.eval()(batch())["text"] for made in (loaded.torch.network(), exported)]
    torch.testing.assert_close(states[1], states[0], rtol=1e-5, atol=1e-5)
