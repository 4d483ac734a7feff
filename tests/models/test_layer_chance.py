"""Layers that are left out, or that stand in for a predecessor's: what runs in an update, and what never differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.models.adapters.adapter_runs import batch
from workbench.core.errors import WorkbenchError
from workbench.models.context import Context
from workbench.models.network import Network
from workbench.models.networks import build_networks
from workbench.recipe.trees import recipe_from_dict


def networks(seed: int = 0, heads: int = 2, **options: Any) -> dict[str, Network]:
    """A network of two layers and one of four, without dropout."""
    torch.manual_seed(seed)
    text = {"embedding": "token", "hidden_size": 8, "vocab_size": 20, "dropout": 0.0}
    layer = {"layer": "self", "stream": "text", "num_heads": heads, "dropout": 0.0, "attention_dropout": 0.0}
    spec: dict[str, Any] = {"streams": {"text": text}, "init_range": 0.3}
    tree: dict[str, Any] = {
        "model": {
            "old": {**spec, "layers": [{**layer, "repeat": 4}], "frozen": True},
            "main": {**spec, "layers": [{**layer, "repeat": 2}], **options},
        },
        "tasks": {"a": {"corpora": ["a"], "sequence": "document", "objectives": [{"objective": "mlm"}]}},
        "train": {"max_steps": 1, "global_batch_size": 1, "micro_batch_size": 1, "lr": 1},
    }
    return build_networks(recipe_from_dict(tree), seed=seed)


def passed(network: Network, progress: float = 1.0) -> torch.Tensor:
    return network(batch(), Context(batch(), progress=progress))["text"]


def through(network: Network, embedded: Network) -> torch.Tensor:
    hidden, context = embedded.embed(batch()), Context(batch())
    for layer in network.layers:
        hidden = layer(hidden, context)
    return hidden["text"]


def test_a_predecessor_s_layers_run_where_no_successor_does() -> None:
    made = networks(succeeds={"predecessor": "old", "start": 0.0, "until": 0.5})
    main = made["main"].train()
    torch.testing.assert_close(passed(main, 0.0), through(made["old"], main))
    for progress in (0.5, 0.9):
        torch.testing.assert_close(passed(main, progress), through(main, main))
    torch.testing.assert_close(passed(main.eval(), 0.0), through(main, main))
    assert not made["old"].training
    assert {name for name, _ in main.named_parameters()} == {
        name for name, _ in networks()["main"].named_parameters()
    }  # the predecessor's weights are none of its own


def frequency(of: Callable[[float], bool]) -> float:
    return sum(of(step / 2000) for step in range(2000)) / 2000


def test_layers_are_drawn_by_the_update_alone_and_as_often_as_stated() -> None:
    main = networks(layer_drop=0.2)["main"].train()
    drawn = main.chance.layers
    assert frequency(lambda at: not drawn(main, 1, at)) == pytest.approx(0.2, abs=0.03)
    assert [len(drawn(main, 0, 0.3)) for _ in range(3)] == [len(drawn(main, 0, 0.3))] * 3
    made = networks(succeeds={"predecessor": "old", "start": 0.4, "until": 1.0})
    main, drawn = made["main"], made["main"].chance.layers
    early = frequency(lambda at: drawn(main, 0, at / 100) == [main.layers[0]])
    assert early == pytest.approx(0.4, abs=0.04)
    assert all(len(drawn(main, 1, step / 100)) in (1, 2) for step in range(100))


def test_a_layer_that_is_left_out_changes_nothing() -> None:
    main = networks(layer_drop=0.999)["main"].train()
    at = next(step / 100 for step in range(100) if not main.chance.layers(main, 0, step / 100))
    torch.testing.assert_close(passed(main, at), main.embed(batch())["text"])
    assert torch.equal(passed(main.eval(), at), through(main, main))


@pytest.mark.parametrize(
    ("succeeds", "words"),
    [
        ({"predecessor": "typo"}, "unknown network 'typo'"),
        ({"predecessor": "main"}, "unknown network 'main'"),
        ({"predecessor": "old", "until": 0}, "allowed: a number above 0"),
    ],
)
def test_successors_that_cannot_be_are_refused(succeeds: dict[str, Any], words: str) -> None:
    with pytest.raises(WorkbenchError, match=words):
        networks(succeeds=succeeds)
