"""Ranks on several nodes: folders that they don't share, SLURM's variables, and ranks that stop answering."""

from __future__ import annotations

import random
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.training.test_ranks import free_port
from workbench.runs.metrics_file import read_metrics

Launch = Callable[..., Any]
SOON = 60


@pytest.mark.scale
def test_ranks_without_a_shared_folder_are_refused(make_recipe: Any, launch: Launch, tmp_path: Path) -> None:
    """Two nodes with the same relative folder in other working directories: for a new run, and for one that resumes."""
    recipe, host = make_recipe(), socket.gethostname()
    places = [tmp_path / "first", tmp_path / "second"]
    for place in places:
        place.mkdir()

    def both(*overrides: str) -> list[tuple[int, str]]:
        port = free_port()
        ranks = [
            launch(recipe, Path("runs/x"), *overrides, rank=rank, size=2, port=port, PWD=str(place))
            for rank, place in enumerate(places)
        ]
        return [rank.wait(SOON) for rank in ranks]

    reported = (
        f"the run folder of rank 0 ({places[0]}/runs/x on {host}) is not that of rank 1 on {host}: {places[1]}/runs/x"
    )
    for code, output in both():
        assert code == 2, output
        assert reported in " ".join(output.split())
    assert not (places[0] / "runs/x").exists()
    assert not (places[1] / "runs").exists()
    assert launch(recipe, Path("runs/x"), "train.max_steps=5", PWD=str(places[0])).wait(SOON)[0] == 0
    for code, output in both():
        assert code == 2, output
        assert reported in " ".join(output.split())
    assert [record["step"] for record in read_metrics(places[0] / "runs/x")] == [1, 2, 3, 4, 5]


@pytest.mark.scale
def test_srun_starts_ranks(make_recipe: Any, launch: Launch, tmp_path: Path) -> None:
    recipe, run = make_recipe(), tmp_path / "run"
    step = {"SLURM_JOB_ID": str(random.randrange(10**6)), "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}
    step |= {"SLURM_JOB_NODELIST": "localhost", "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_NODEID": "0"}
    ranks = [
        launch(recipe, run, "train.max_steps=4", SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank), **step)
        for rank in range(2)
    ]
    ends = [rank.wait(SOON) for rank in ranks]
    assert [code for code, _ in ends] == [0, 0], ends
    assert "12 = 4 x 3 micro-batches, 1 or 2 on each of 2 ranks; 1 rank idle in the last of 2 passes" in ends[0][1]
    assert [record["step"] for record in read_metrics(run)] == [1, 2, 3, 4]


@pytest.mark.scale
def test_a_rank_that_stops_is_named(make_recipe: Any, launch: Launch, tmp_path: Path) -> None:
    recipe, run, port = make_recipe(lambda tree: tree["train"].update(max_steps=10**5)), tmp_path / "run", free_port()
    ranks = [launch(recipe, run, rank=rank, size=2, port=port, WORKBENCH_PATIENCE="8") for rank in range(2)]
    deadline = time.monotonic() + SOON
    while not (run / "metrics.jsonl").is_file() or len(read_metrics(run)) < 3:
        assert time.monotonic() < deadline, ranks[0].output.read_text()
        time.sleep(0.02)
    ranks[1].signal(signal.SIGSTOP)
    code, output = ranks[0].wait(SOON)
    ranks[1].process.kill()
    assert code == 1, output
    named = f"rank 0 of 2 lost the others: rank 1 ({socket.gethostname()}, process {ranks[1].process.pid}, step "
    assert named in output, output[-2000:]
    assert "sends no heartbeat" in output


@pytest.mark.scale
def test_a_slow_rank_is_seen(make_recipe: Any, launch: Launch, tmp_path: Path) -> None:
    def slow(tree: dict[str, Any]) -> None:
        tree["model"]["layers"].append(
            {"layer": "toy_components:FaultyLayer", "stream": "text", "how": "slow", "rank": 1}
        )
        tree["train"].update(max_steps=6, micro_batch_size=3, log_every=2)

    recipe, run, port = make_recipe(slow), tmp_path / "run", free_port()
    ranks = [launch(recipe, run, rank=rank, size=2, port=port) for rank in range(2)]
    ends = [rank.wait(SOON) for rank in ranks]
    assert [code for code, _ in ends] == [0, 0], ends
    last = read_metrics(run)[-1]
    assert last["rank_forward_seconds_max_rank"] == 1
    assert last["rank_forward_seconds_max"] >= 2 * 0.3 > last["rank_forward_seconds_min"]
    for name in ("rank_forward_seconds", "rank_data_wait_seconds", "rank_memory_gib"):
        assert 0 < last[f"{name}_min"] <= last[f"{name}_mean"] <= last[f"{name}_max"]
    assert "rank 1 1." in ends[0][1]
    assert "x slower" in ends[0][1]


def test_a_rank_that_waits_for_others_ends_at_once(make_recipe: Any, launch: Launch, tmp_path: Path) -> None:
    port = free_port()
    rank = launch(make_recipe(), tmp_path / "run", rank=0, size=2, port=port)
    deadline = time.monotonic() + SOON
    with socket.socket() as probe:
        while probe.connect_ex(("127.0.0.1", port)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    time.sleep(0.3)
    rank.signal(signal.SIGTERM)
    start = time.monotonic()
    assert rank.wait(SOON)[0] == -signal.SIGTERM
    assert time.monotonic() - start < 5
    assert not (tmp_path / "run").exists()
