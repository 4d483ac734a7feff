"""Killed, interrupted and stopped runs, as separate processes."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.recipe.reading import load_recipe
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.metrics_file import read_metrics
from workbench.training.pretrain import pretrain

Launch = Callable[..., Any]


def long(tree: dict[str, Any]) -> None:
    tree["train"].update(max_steps=400, save_every=7, num_workers=1)


def wait_for_step(run: Path, step: int, process: Any) -> None:
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and process.running:
        if any(record["step"] >= step for record in read_metrics(run)):
            return
        time.sleep(0.02)
    pytest.fail(f"step {step} did not come: {process.wait()}")


@pytest.mark.parametrize("kills", [pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.scale)])
def test_sigkill_at_a_random_step_and_resume_is_bitwise_equal(
    make_recipe: Any, launch: Launch, tmp_path: Path, kills: int
) -> None:
    recipe = make_recipe(long)
    run = tmp_path / "killed"
    last = 0
    for _ in range(kills):
        process = launch(recipe, run)
        wait_for_step(run, last + random.randint(8, 25), process)
        time.sleep(random.random() * 0.02)
        process.signal(signal.SIGKILL)
        process.wait()
        last = max(record["step"] for record in read_metrics(run))
    pretrain(load_recipe(str(recipe)), run, until=last + 5)
    pretrain(load_recipe(str(recipe)), tmp_path / "whole", until=last + 5)
    resumed, whole = read_metrics(run), read_metrics(tmp_path / "whole")
    assert [record["step"] for record in resumed] == list(range(1, last + 6))
    assert [r["mlm/loss"] for r in resumed] == [r["mlm/loss"] for r in whole]
    assert [r["grad_norm"] for r in resumed] == [r["grad_norm"] for r in whole]
    assert not list(run.glob("**/.*.tmp"))


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 143),
        *(
            pytest.param(*case, marks=pytest.mark.scale)
            for case in [(signal.SIGINT, 130), (signal.SIGHUP, 129), (signal.SIGUSR1, 138)]
        ),
    ],
)
def test_a_signal_saves_the_finished_step_and_says_how_to_continue(
    make_recipe: Any, launch: Launch, tmp_path: Path, number: int, code: int
) -> None:
    recipe, run = make_recipe(long), tmp_path / "run"
    process = launch(recipe, run, "train.save_every=100000")
    wait_for_step(run, 3, process)
    process.signal(number)
    found, output = process.wait()
    assert found == code, output
    assert "continue with" in output
    assert "pretrain" in output
    assert "Traceback" not in output
    assert Checkpoints(run).steps() == [read_metrics(run)[-1]["step"]]
