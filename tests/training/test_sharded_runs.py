"""Runs of sharded models: stopped, resumed by other ranks, saved in the background."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import workbench
from tests.training.test_ranks import columns, keep_until, run_ranks
from workbench.recipe.reading import load_recipe
from workbench.runs.checkpoint import read_checkpoint
from workbench.training.pretrain import pretrain

Launch = Callable[..., Any]
SHARDED = "train.parallel.shard=full"


def with_frozen(tree: dict[str, Any]) -> None:
    """A frozen network, and words that the head shares with the embedding."""
    main = tree["model"]
    tree["model"] = {"main": main, "other": {**main, "freeze": True}}
    tree["train"].update(max_steps=12, save_every=4)


def test_a_sharded_run_is_resumed_by_other_ranks(make_recipe: Any, launch: Launch, tmp_path: Path) -> None:
    recipe = make_recipe(lambda tree: tree["train"].update(max_steps=12, save_every=4, keep_last=9))
    pretrain(load_recipe(str(recipe)), tmp_path / "one")
    run = tmp_path / "many"
    run_ranks(launch, 2, recipe, run, SHARDED, "train.async_save=true")
    last = run / "checkpoints" / "step-12"
    assert sorted(path.name for path in last.iterdir()) == ["model.safetensors", "state.json", "trainer-pieces"]
    keep_until(run, 8)
    assert (run / "checkpoints" / "step-8" / "model-pieces").is_dir()
    assert len(workbench.load(run).torch.state_dict()) == len(read_checkpoint(tmp_path / "one/checkpoints/step-8"))
    pretrain(load_recipe(str(recipe)), run, until=9)
    assert (run / "checkpoints" / "step-9" / "trainer.pt").is_file()
    run_ranks(launch, 3, recipe, run, SHARDED)
    one, many = (columns(place, "mlm/loss", "grad_norm") for place in (tmp_path / "one", run))
    assert len(many) == 12
    np.testing.assert_allclose(many, one, atol=1e-6, rtol=1e-6)
