"""A model of three times the memory that a rank may have trains on four ranks, and not on one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.training.test_ranks import columns, free_port

HIDDEN, LAYERS = 512, 24
STATE_MIB = 16 * LAYERS * 12 * HIDDEN**2 // 2**20
"""Weights, gradients and two moments of the layers, of four bytes each."""
TIMEOUT_S = 300


def large(tree: dict[str, Any]) -> None:
    tree["model"]["streams"]["text"]["hidden_size"] = HIDDEN
    tree["model"]["layers"][0] |= {"num_heads": 8, "repeat": LAYERS}
    few(tree)


def few(tree: dict[str, Any]) -> None:
    tree["train"] |= {"max_steps": 3, "save_every": 0, "global_batch_size": 4, "micro_batch_size": 1}
    tree["train"] |= {"lr": 1e-4, "lr_schedule": {"lr_schedule": "constant"}, "precision": "float32"}


def on_ranks(size: int, recipes: list[Path], run: Path, mib: int, *overrides: str) -> tuple[list[int], str]:
    """Exit codes and output of a run of which every rank may have so much memory."""
    settings = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [
        sys.executable,
        "-m",
        "tests.training.sharded_memory",
        *map(str, recipes),
        str(run),
        str(mib),
        *overrides,
    ]
    environment = {**os.environ, **settings, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    environment["MALLOC_MMAP_THRESHOLD_"] = str(2**18)  # freed parameters return to the system
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    ranks = [
        subprocess.Popen(command, cwd=ROOT, env={**environment, "RANK": str(r), "LOCAL_RANK": str(r)}, **pipes)
        for r in range(size)
    ]
    try:
        outputs = [rank.communicate(timeout=TIMEOUT_S)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return [rank.returncode for rank in ranks], "\n".join(outputs)


@pytest.mark.scale
def test_a_model_of_three_times_the_memory_of_a_rank(make_recipe: Any, tmp_path: Path) -> None:
    recipes = [make_recipe(few, name="small"), make_recipe(large)]
    limit = STATE_MIB // 3  # a quarter is the rank's share; gathered layers and stacks of threads take the rest
    codes, output = on_ranks(1, recipes, tmp_path / "one", limit)
    assert codes == [1], output
    assert "memory" in output.splitlines()[-1]
    codes, output = on_ranks(4, recipes, tmp_path / "four", limit, "train.parallel.shard=full")
    assert codes == [0] * 4, output[-4000:]
    codes, output = on_ranks(1, recipes, tmp_path / "enough", 4 * STATE_MIB)
    assert codes == [0], output[-4000:]
    four, one = (columns(tmp_path / name, "mlm/loss") for name in ("four", "enough"))
    assert four == pytest.approx(one, rel=1e-5)
