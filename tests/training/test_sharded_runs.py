"""Runs of sharded models: stopped, resumed by other ranks, saved in the background."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import workbench
from tests.training.test_frozen_weights import with_a_teacher
from tests.training.test_kill import wait_for_step
from tests.training.test_ranks import columns, free_port, keep_until, run_ranks
from workbench.recipe.reading import load_recipe
from workbench.runs.checkpoint import read_checkpoint, read_state, stored_weights
from workbench.runs.checkpoints import Checkpoints
from workbench.training.pretrain import pretrain

Launch = Callable[..., Any]
SHARDED = "train.parallel.shard=full"


def frozen(tree: dict[str, Any]) -> None:
    """A frozen network next to the trained one; checkpoints leave it out."""
    with_a_teacher(tree)
    tree["train"].update(max_steps=6, save_every=2, keep_last=9)


@pytest.mark.long
def test_a_sharded_run_is_resumed_by_other_ranks(
    make_recipe: Any, launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first ranks compare their collectives, and count them in the log."""
    recipe = make_recipe(lambda tree: tree["train"].update(max_steps=12, save_every=4, keep_last=9))
    pretrain(load_recipe(str(recipe)), tmp_path / "one")
    run = tmp_path / "many"
    with monkeypatch.context() as patched:
        patched.setenv("WORKBENCH_COLLECTIVES", "check")
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


@pytest.mark.scale
def test_frozen_weights_of_a_sharded_run_are_stored_once(make_recipe: Any, launch: Launch, tmp_path: Path) -> None:
    recipe = make_recipe(frozen)
    run = tmp_path / "many"
    run_ranks(launch, 2, recipe, run, SHARDED)
    names = set(stored_weights(run / "checkpoints" / "step-4"))
    assert names
    assert not [name for name in names if name.startswith("networks.teacher.")]
    assert read_state(run / "checkpoints" / "step-4")["kept"]
    pretrain(load_recipe(str(recipe)), tmp_path / "one")
    keep_until(run, 4)
    run_ranks(launch, 2, recipe, run, SHARDED)
    one, many = (columns(place, "mlm/loss", "grad_norm") for place in (tmp_path / "one", run))
    np.testing.assert_allclose(many, one, atol=1e-6, rtol=1e-6)
    before, after = (read_checkpoint(run / "checkpoints" / f"step-{step}") for step in (4, 6))
    assert all(torch.equal(before[name], after[name]) for name in before if name.startswith("networks.teacher."))


@pytest.mark.scale
def test_a_rank_that_is_killed_while_checkpoints_are_written(make_recipe: Any, launch: Launch, tmp_path: Path) -> None:
    """At random instants; the run resumes as if nothing had happened."""
    steps = {"max_steps": 60, "save_every": 1, "keep_last": 1}
    recipe = make_recipe(lambda tree: tree["train"].update(steps))
    overrides = (SHARDED, "train.async_save=true")
    run_ranks(launch, 2, recipe, tmp_path / "whole", *overrides)
    run, drawn = tmp_path / "killed", random.Random(0)
    for _ in range(6):
        port = free_port()
        ranks = [launch(recipe, run, *overrides, rank=rank, size=2, port=port) for rank in range(2)]
        reached = Checkpoints(run).steps() or [0]
        wait_for_step(run, min(55, reached[-1] + drawn.randint(2, 8)), ranks[0])
        time.sleep(drawn.random() * 0.1)
        ranks[drawn.randint(0, 1)].signal(signal.SIGKILL)
        for rank in ranks:
            rank.wait(30)
        if (run / "checkpoints").exists():
            Checkpoints(run).clean()
            assert not Checkpoints(run).whole().damaged
    run_ranks(launch, 2, recipe, run, *overrides)
    whole, killed = (columns(place, "mlm/loss", "grad_norm") for place in (tmp_path / "whole", run))
    assert (whole == killed).all()
    first, second = (workbench.load(place).torch.state_dict() for place in (tmp_path / "whole", run))
    assert all(torch.equal(first[name], second[name]) for name in first)
