"""Networks of a recipe that are tied, frozen, or follow others."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from workbench.core.errors import WorkbenchError
from workbench.models.networks import build_networks, follow
from workbench.pretraining.model import PretrainingModel
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import recipe_from_dict

LAYERS = [{"layer": "self", "stream": "text", "num_heads": 2}]
TEXT = {"embedding": "token", "hidden_size": 8}


def recipe(**networks: Any) -> Recipe:
    tasks = {"text": {"corpora": ["somewhere"], "sequence": "document", "objectives": [{"objective": "mlm"}]}}
    train = {"max_steps": 2, "global_batch_size": 2, "micro_batch_size": 2, "lr": 1e-3}
    return recipe_from_dict({"model": networks, "tasks": tasks, "train": train})


def described(**more: Any) -> dict[str, Any]:
    return {"streams": {"text": dict(TEXT)}, "layers": LAYERS, **more}


def test_tables_are_tied_across_networks() -> None:
    made = build_networks(
        recipe(main=described(), generator=described(tie={"text.token": "main.text.token"})), vocab_size=9
    )
    tables = [network.embeddings["text"].token for network in made.values()]
    assert tables[0] is tables[1]
    assert made["main"].embeddings["text"].position is not made["generator"].embeddings["text"].position


def test_tables_are_tied_within_a_network() -> None:
    both = {"text": dict(TEXT), "target": dict(TEXT)}
    made = build_networks(recipe(main=described(streams=both, tie={"target.token": "text.token"})), vocab_size=9)
    embeddings = made["main"].embeddings
    assert embeddings["target"].token is embeddings["text"].token


def test_a_module_of_a_layer_is_tied() -> None:
    layers = [{"layer": "self", "stream": "text", "num_heads": 2}, {"layer": "self", "stream": "text", "num_heads": 2}]
    tie = {"layers.1.feed_forward": "layers.0.feed_forward"}
    made = build_networks(recipe(main=described(layers=layers, tie=tie)), vocab_size=9)["main"]
    assert made.layers[1].feed_forward is made.layers[0].feed_forward
    assert made.layers[1].attention is not made.layers[0].attention


@pytest.mark.parametrize(
    ("tie", "message"),
    [
        ({"text.tokens": "main.text.token"}, r"unknown module 'tokens' in model\.small\.tie\.text\.tokens"),
        ({"text.token": "main.image.token"}, r"unknown module 'image'"),
        ({"text.token": "main.text.token"}, r"\[9, 4\].*\[9, 8\].*only modules of the same class"),
    ],
)
def test_ties_that_cannot_be_are_refused(tie: dict[str, str], message: str) -> None:
    small = described(streams={"text": {**TEXT, "hidden_size": 4}}, tie=tie)
    with pytest.raises(WorkbenchError, match=message):
        build_networks(recipe(main=described(), small=small), vocab_size=9)


def test_a_frozen_network_stays_in_evaluation_mode() -> None:
    made = build_networks(recipe(main=described(), teacher=described(frozen=True)), vocab_size=9)
    teacher = made["teacher"].train()
    assert not any(module.training for module in teacher.modules())
    assert not any(parameter.requires_grad for parameter in teacher.parameters())
    assert made["main"].train().training


def test_a_follower_starts_as_a_copy_and_moves() -> None:
    described_networks = recipe(main=described(), momentum={"follows": "main", "decay": 0.75})
    made = build_networks(described_networks, vocab_size=9)
    own, other = (made[name].embeddings["text"].token.weight for name in ("momentum", "main"))
    with torch.no_grad():
        other.add_(1)
    PretrainingModel(made, {}, {}, described_networks.followers).start_followers()
    torch.testing.assert_close(own, other)
    with torch.no_grad():
        other.add_(4)
    follow(made["momentum"], made["main"], 0.75)
    torch.testing.assert_close(other.detach() - own, torch.full_like(own, 3.0))
    assert not own.requires_grad


def test_to_follow_nobody_is_refused() -> None:
    with pytest.raises(WorkbenchError, match=r"unknown network 'typo'.*model\.momentum\.follows"):
        recipe(main=described(), momentum={"follows": "typo", "decay": 0.9})
