"""A small network with adapters, and runs that train an adapter on another run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench
from workbench.cli.export import export
from workbench.core.errors import WorkbenchError
from workbench.models.adaptation import adapt
from workbench.models.network import Network
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import NetworkSpec
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.names import MODEL
from workbench.runs.weights import read_weights
from workbench.sequences.batch import Batch, Stream
from workbench.training.pretrain import pretrain
from workbench.training.verify_resume import verify_resume


def network(adapters: list[dict[str, Any]] | None = None) -> Network:
    torch.manual_seed(0)
    text = {"embedding": "token", "hidden_size": 8, "vocab_size": 20, "dropout": 0.0}
    layer = {"layer": "self", "stream": "text", "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0, "repeat": 2}
    made = Network(NetworkSpec({"text": text}, [layer], init_range=0.3))
    if adapters:
        adapt(made, adapters, 0.3, "model.adapt")
    return made


def batch() -> Batch:
    positions = torch.cat([torch.arange(4), torch.arange(2)])
    fields = {
        "input_ids": torch.arange(6) + 3,
        "position_ids": positions,
        "token_type_ids": torch.zeros_like(positions),
    }
    return Batch({"text": Stream(fields, torch.tensor([0, 4, 6]), [4, 2])})


def trained(made: Network) -> None:
    """As if the adapters had learned something."""
    with torch.no_grad():
        for parameter in made.adapters.parameters():
            parameter.normal_(std=0.5)


def adapting(
    make_recipe: Callable[..., Path], folder: Path, adapter: dict[str, Any]
) -> tuple[Path, Callable[[dict[str, Any]], None]]:
    """A run to start from, and what makes of a recipe one that adapts it."""
    base = pretrain(load_recipe(str(make_recipe(name="base"))), folder / "base", until=2)

    def change(tree: dict[str, Any]) -> None:
        tree["model"] |= {"init_from": str(base), "adapt": [adapter]}
        tree["train"].update(max_steps=4, save_every=2)

    return base, change


def check_trained_alone(make_recipe: Callable[..., Path], folder: Path, adapter: dict[str, Any], part: str) -> None:
    """A run continues exactly, saves of the network its adapter alone (`part` of its names), and is not exported."""
    _, adapted = adapting(make_recipe, folder, adapter)
    assert verify_resume(load_recipe(str(make_recipe(adapted))), folder, steps=4).equal
    run = folder / "interrupted"
    saved = read_weights(last(run) / MODEL)
    assert all(name.startswith((f"networks.main.adapters.0.{part}", "heads.mlm.")) for name in saved)
    workbench.load(run)
    with pytest.raises(WorkbenchError, match="cannot be exported"):
        export(run, folder / "exported", "bert")


def last(run: Path) -> Path:
    found = Checkpoints(run).latest()
    assert found is not None
    return found
