"""Which parameters are trained, decayed, slowed down or held back, by name, role and height."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from workbench.core.errors import WorkbenchError
from workbench.models.network import Network
from workbench.optimization.factory import make_optimizer
from workbench.optimization.groups import freeze, hold_back, set_learning_rate
from workbench.recipe.spec import NetworkSpec
from workbench.recipe.train_spec import GroupSpec, TrainSpec

SPEC = TrainSpec(max_steps=9, global_batch_size=1, micro_batch_size=1, lr=0.1)


class Tied(nn.Module):
    """A table with a tied decoder, a norm and a map."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 3)
        self.norm = nn.LayerNorm(3)
        self.inner = nn.Linear(3, 3)
        self.decoder = nn.Linear(3, 5)
        self.decoder.weight = self.table.weight


def by_name(root: nn.Module, optimizer: torch.optim.Optimizer, key: str) -> dict[str, Any]:
    names = {p: name for name, p in root.named_parameters()}
    return {names[p]: group[key] for group in optimizer.param_groups for p in group["params"]}


def test_decay_is_for_the_weights_of_maps_alone() -> None:
    model = Tied()
    found = by_name(model, make_optimizer(model, SPEC), "weight_decay")
    assert {name for name, decay in found.items() if decay} == {"inner.weight"}
    assert found["inner.weight"] == 0.01


class Roles(nn.Module):
    """Parameters of two dimensions in every role."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 3))
        self.bias = nn.Parameter(torch.ones(2, 3))
        self.content_bias = nn.Parameter(torch.ones(2, 3))
        self.prompt = nn.Parameter(torch.ones(2, 3))
        self.norm = nn.LayerNorm((2, 3))
        self.inner = nn.Sequential(nn.Linear(2, 2, bias=False))

    def no_weight_decay(self) -> set[str]:
        return {"prompt", "inner.0.weight", "absent"}


def test_roles_of_two_dimensions_are_not_decayed() -> None:
    model = nn.ModuleList([Roles(), nn.Linear(2, 2, bias=False)])
    found = by_name(model, make_optimizer(model, SPEC), "weight_decay")
    assert {name for name, decay in found.items() if decay} == {"0.weight", "1.weight"}


def test_frozen_parameters_are_left_out() -> None:
    model = Tied()
    frozen = freeze(model, replace(SPEC, freeze=["norm", "decoder.b*"]))
    assert frozen == ["decoder.bias", "norm.bias", "norm.weight"]
    optimizer = make_optimizer(model, SPEC)
    assert by_name(model, optimizer, "lr").keys() == {"table.weight", "inner.weight", "inner.bias"}


def test_what_alone_is_trained() -> None:
    model = Tied()
    freeze(model, replace(SPEC, train_only=["inner", "norm"], freeze=["*.bias"]))
    assert {name for name, p in model.named_parameters() if p.requires_grad} == {"inner.weight", "norm.weight"}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"freeze": ["layers"]}, r"train\.freeze: 'layers' matches no parameter"),
        ({"train_only": ["iner"]}, r"train\.train_only: 'iner' matches no parameter"),
        ({"freeze": ["*"]}, r"train\.freeze leaves nothing to train"),
        ({"train_only": ["norm"], "freeze": ["norm"]}, r"train\.freeze and train\.train_only leaves nothing"),
    ],
)
def test_patterns_that_mean_nothing_are_refused(keys: dict[str, list[str]], message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        freeze(Tied(), replace(SPEC, **keys))


def test_groups_say_rate_decay_and_first_step() -> None:
    model = Tied()
    groups = [GroupSpec("inner", 0.5, 0.2, 2), GroupSpec("*.bias", 3.0)]
    optimizer = make_optimizer(model, replace(SPEC, groups=groups))
    set_learning_rate(optimizer, 1.0)
    rates = by_name(model, optimizer, "lr")
    assert rates == {
        "table.weight": 1.0,
        "norm.weight": 1.0,
        "norm.bias": 3.0,
        "inner.weight": 0.5,
        "inner.bias": 0.5,  # of the first group that matches
        "decoder.bias": 3.0,
    }
    decays = by_name(model, optimizer, "weight_decay")
    assert (decays["inner.weight"], decays["inner.bias"]) == (0.2, 0.0)
    for step, held in ((1, True), (2, False)):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        hold_back(optimizer, step)
        assert (model.inner.weight.grad is None) == (model.inner.bias.grad is None) == held
        assert model.norm.weight.grad is not None


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([GroupSpec("outer")], r"train\.groups\[0\] \(of what is trained\): 'outer' matches no parameter"),
        ([GroupSpec("inner"), GroupSpec("inner.bias")], r"train\.groups\[1\]"),
        ([GroupSpec("*", start_step=3)], "nothing is trained before step 3"),
    ],
)
def test_groups_that_mean_nothing_are_refused(groups: list[GroupSpec], message: str) -> None:
    with pytest.raises(WorkbenchError, match=message):
        make_optimizer(Tied(), replace(SPEC, groups=groups))


def network(*layers: dict[str, Any], streams: tuple[str, ...] = ("text",)) -> nn.ModuleDict:
    table = {"embedding": "token", "hidden_size": 8, "vocab_size": 9, "max_positions": 9}
    made = Network(NetworkSpec({name: dict(table) for name in streams}, list(layers), poolers=["text"]))
    return nn.ModuleDict({"main": made, "head": nn.Linear(8, 2)})


def test_rates_fall_by_layer_from_the_top() -> None:
    own = {"layer": "self", "stream": "text", "num_heads": 2, "repeat": 3}
    root = network(own, {"layer": "norm", "stream": "text"})
    found = by_name(root, make_optimizer(root, replace(SPEC, layer_decay=0.5)), "lr_factor")
    assert found["head.weight"] == found["main.poolers.text.dense.weight"] == found["main.layers.3.norm.weight"] == 1.0
    heights = {prefix: {f for n, f in found.items() if n.startswith(prefix)} for prefix in ("main.layers.0", "main.l")}
    assert heights["main.layers.0"] == {0.125}
    assert {f for n, f in found.items() if n.startswith("main.layers.2")} == {0.5}
    assert {f for n, f in found.items() if n.startswith("main.embeddings")} == {0.0625}


def test_heights_are_counted_along_the_streams() -> None:
    text = {"layer": "self", "stream": "text", "num_heads": 2, "repeat": 3}
    image = {"layer": "self", "stream": "image", "num_heads": 2}
    both = {"layer": "joint", "streams": ["text", "image"], "num_heads": 2}
    root = network(text, image, both, streams=("text", "image"))
    found = by_name(root, make_optimizer(root, replace(SPEC, layer_decay=0.5)), "lr_factor")
    first = {key: next(f for n, f in found.items() if n.startswith(f"main.{key}")) for key in _PLACES}
    assert first == _PLACES


_PLACES = {
    "layers.4": 0.5,  # joint
    "layers.3": 0.25,  # image
    "layers.2": 0.25,  # the last of the text's
    "layers.0": 0.0625,
    "embeddings.text": 0.03125,
    "embeddings.image": 0.125,
}


def test_shared_layers_have_the_place_of_the_highest() -> None:
    root = network({"layer": "self", "stream": "text", "num_heads": 2, "repeat": 3, "share": "all"})
    found = by_name(root, make_optimizer(root, replace(SPEC, layer_decay=0.5)), "lr_factor")
    assert {f for n, f in found.items() if n.startswith("main.layers")} == {0.5}
