"""Views that have streams in common: their layers run once, and all is as if they had run for each view."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from workbench.models.network import Network
from workbench.pretraining.forward import ForwardPass, ViewKey
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Batch, MicroBatch, Stream, share_streams

SIZE, TEXT, IMAGE = 8, [3, 2], [2, 4]
QUIET = {"num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}


class Plain(nn.Module):
    """A user's layer, which declares nothing of its streams."""

    def forward(self, hidden: dict[str, Tensor], context: Any) -> dict[str, Tensor]:
        return {name: rows + 1 for name, rows in hidden.items()}


def network(*layers: dict[str, Any]) -> Network:
    torch.manual_seed(0)
    table = {"embedding": "token", "hidden_size": SIZE, "vocab_size": 20, "token_types": 0, "dropout": 0.0}
    return Network(NetworkSpec({"text": table, "image": dict(table)}, list(layers), init_range=0.3))


def own(stream: str, repeat: int = 1) -> dict[str, Any]:
    return {"layer": "self", "stream": stream, "repeat": repeat, **QUIET}


CROSS = {"layer": "cross", "stream": "text", "to": "image", **QUIET}
ALBEF = [own("image", 3), {"layer": "norm", "stream": "image"}, own("text"), {"layer": "tap", "name": "tap"}, CROSS]
CO = {"layer": "co", "streams": ["text", "image"], **QUIET}


def stream(ids: list[int], lengths: list[int]) -> Stream:
    positions = torch.cat([torch.arange(length) for length in lengths])
    return Stream(
        {"input_ids": torch.tensor(ids), "position_ids": positions}, torch.tensor([0, *lengths]).cumsum(0), lengths
    )


def view(text: int = 1, image: int = 9) -> Batch:
    return Batch({"text": stream([text, 2, 3, 4, 5], TEXT), "image": stream([image, 8, 7, 6, 5, 4], IMAGE)})


def counted(made: Network) -> Counter[int]:
    """How often each layer runs from now on."""
    calls: Counter[int] = Counter()
    for number, layer in enumerate(made.layers):
        layer.register_forward_hook(lambda *_, number=number: calls.update([number]))
    return calls


def states(made: Network, views: dict[str, Batch]) -> dict[str, dict[str, Tensor]]:
    forward = ForwardPass({"main": made}, views)
    found = {}
    for name in views:
        read = forward.read(ViewKey("main", name))
        found[name] = {**read.states, **{f"tap {s}": rows for s, rows in read.taps.get("tap", {}).items()}}
    return found


def gradients(made: Network, found: dict[str, dict[str, Tensor]]) -> list[Tensor]:
    total = sum((n + 1) * rows.sin().sum() for n, view in enumerate(found.values()) for rows in view.values())
    parameters = [p for p in made.parameters() if p.requires_grad]
    return [g for g in torch.autograd.grad(total, parameters, allow_unused=True) if g is not None]


STACKS = {
    "albef": (ALBEF, [1, 1, 1, 1, 2, 2, 2]),
    "mixed at once": ([CO, own("image")], [2, 2]),
    "mixed later": ([own("image"), CO, own("image"), own("text")], [1, 2, 2, 2]),
    "one way": ([own("image"), CROSS, own("image", 2), CROSS], [1, 2, 1, 1, 2]),
}


@pytest.mark.parametrize("name", STACKS)
def test_all_is_as_if_the_layers_had_run_for_each_view(name: str) -> None:
    layers, wanted_calls = STACKS[name]
    made = network(*layers)
    apart = {"main": view(), "masked": view(text=7)}
    wanted = states(made, apart)
    wanted_gradients = gradients(made, wanted)
    calls = counted(made)
    found = states(made, share_streams(apart))
    assert [calls[number] for number in range(len(made.layers))] == wanted_calls
    for name_of_view, streams in wanted.items():
        assert found[name_of_view].keys() == streams.keys()
        assert all(torch.equal(found[name_of_view][s], rows) for s, rows in streams.items())
    for one, other in zip(gradients(made, found), wanted_gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_a_layer_that_says_nothing_ends_what_is_common() -> None:
    made = network(own("image"), own("image"))
    made.layers.insert(1, Plain())
    calls = counted(made)
    views = share_streams({"main": view(), "masked": view(text=7)})
    found = states(made, views)
    assert [calls[number] for number in range(3)] == [1, 2, 2]
    assert torch.equal(found["masked"]["image"], found["main"]["image"])


def test_views_with_nothing_in_common_share_nothing() -> None:
    made = network(*ALBEF)
    calls = counted(made)
    states(made, share_streams({"main": view(), "other": view(text=7, image=1)}))
    assert set(calls.values()) == {2}


def test_states_without_a_graph_are_not_taken_where_gradients_flow() -> None:
    made = network(*ALBEF)
    forward = ForwardPass({"main": made}, share_streams({"main": view(), "masked": view(text=7)}))
    with torch.no_grad():
        forward.read(ViewKey("main", "main"))
    forward.read(ViewKey("main", "masked")).states["image"].sum().backward()
    assert made.layers[0].attention.attention.qkv.weight.grad is not None


def test_three_views() -> None:
    made = network(*ALBEF)
    views = {"main": view(), "masked": view(text=7), "turned": view(image=1), "again": view()}
    wanted = states(made, copy.deepcopy(views))
    calls = counted(made)
    found = states(made, share_streams(views))
    for name, streams in wanted.items():
        assert all(torch.equal(found[name][s], rows) for s, rows in streams.items())
    assert calls[0] == 2
    assert calls[4] == 2


def test_common_streams_stay_one_on_the_way_to_the_device() -> None:
    views = share_streams({"main": view(), "masked": view(text=7)})
    micro = pickle.loads(pickle.dumps(MicroBatch("t", views, {}))).to("cpu")
    one, other = micro.views.values()
    assert one.common(other) == {"image"}
    assert one.streams["text"] is not other.streams["text"]
