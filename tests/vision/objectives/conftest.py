"""A tiny network over text and regions or patches, and what the tests of objectives do with it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from workbench.core.keyed import Draws
from workbench.models.network import Network
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import LossOutput, Objective
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Batch, collate
from workbench.sequences.sequence import Sequence

TEXT = {"embedding": "token", "hidden_size": 16, "vocab_size": 30, "max_positions": 16, "dropout": 0.0}
IMAGES = {
    "regions": {"embedding": "vision.regions", "feature_size": 12},
    "patches": {"embedding": "vision.patches", "grid": 2, "patch": 2},
}


@pytest.fixture
def tiny() -> Callable[..., Network]:
    """`tiny(image="regions")`: one joint layer, poolers for both streams."""

    def made(image: str = "regions") -> Network:
        torch.manual_seed(0)
        streams = {"text": TEXT, "image": {**IMAGES[image], "hidden_size": 16, "dropout": 0.0}}
        layer = {
            "layer": "joint",
            "streams": ["text", "image"],
            "num_heads": 2,
            "intermediate_size": 32,
            "dropout": 0.0,
            "attention_dropout": 0.0,
        }
        return Network(NetworkSpec(streams=streams, layers=[layer], poolers=["text", "image"]))

    return made


@pytest.fixture
def corrupted() -> Callable[..., tuple[list[Sequence], Batch]]:
    """The sequences after an objective's `corrupt`, and their batch; the given ones are left alone."""

    def made(objective: Objective, sequences: list[Sequence], seed: int = 0) -> tuple[list[Sequence], Batch]:
        mine = copy.deepcopy(sequences)
        targets = objective.corrupt(mine, Draws(seed, "task", objective.name, number=(0, 0)))
        return mine, collate(mine, {objective.name: targets})

    return made


@pytest.fixture
def loss() -> Callable[..., LossOutput]:
    """The loss of an objective on a batch, by a fresh head of seed 0 or a given one."""

    def made(objective: Objective, network: Network, batch: Batch, head: Any = None) -> LossOutput:
        torch.manual_seed(0)
        head = head or objective.head(network)
        return head(HeadInputs.of(network, batch, batch.targets.get(objective.name, {})))

    return made


@pytest.fixture
def learned(loss: Callable[..., LossOutput]) -> Callable[..., float]:
    """The loss of an objective on a batch after twenty steps on it, as a share of the first."""

    def trained(objective: Objective, network: Network, batch: Batch) -> float:
        head = objective.head(network)
        optimizer = torch.optim.Adam([*network.parameters(), *head.parameters()], 3e-3)
        losses = []
        for _ in range(20):
            output = loss(objective, network, batch, head)
            optimizer.zero_grad()
            output.loss.backward()
            optimizer.step()
            losses.append(output.loss.item())
        return losses[-1] / losses[0]

    return trained
