"""`torchrun --max-restarts`: a run whose ranks are killed continues, and equals the uninterrupted run bit for bit."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from workbench.recipe.reading import load_recipe
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.metrics_file import read_metrics
from workbench.runs.weights import read_weights

STEPS, SAVED_EVERY = 100, 15
LIMIT = 240
"""Seconds after which a run is said to hang."""
EXACT = ("mlm/loss", "grad_norm", "mlm/accuracy", "step", "lr")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Agents:
    """One or two torchrun agents on this machine, which train a recipe with two ranks in all."""

    def __init__(
        self, rendezvous: str, nodes: int, recipe: Path, run: Path, *overrides: str, restarts: int = 6
    ) -> None:
        self.run, self.output = run, run.with_name(f"{run.name}.txt")
        port = free_port()
        where = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--local-addr=127.0.0.1"]
        if rendezvous == "static":
            where = ["--master-addr=127.0.0.1", f"--master-port={port}"]
        trained = ["-m", "workbench", "pretrain", str(recipe), "--output", str(run), "--trust"]
        common = [f"--nnodes={nodes}", f"--nproc-per-node={2 // nodes}", f"--max-restarts={restarts}"]
        self.processes = []
        for node in range(nodes):
            command = [sys.executable, "-m", "torch.distributed.run", *common, f"--node-rank={node}", *where, *trained]
            environment = {**os.environ, "WORKBENCH_PATIENCE": "60", "CUDA_VISIBLE_DEVICES": ""}
            with self.output.open("a") as file:
                started = subprocess.Popen(command, stdout=file, stderr=file, env=environment, cwd=run.parent)
            self.processes.append(psutil.Process(started.pid))
            self.__dict__.setdefault("popens", []).append(started)

    def ranks(self) -> list[psutil.Process]:
        """The processes that train, without their loader workers."""
        found = []
        for agent in self.processes:
            if agent.is_running() and agent.status() != psutil.STATUS_ZOMBIE:
                found += [child for child in agent.children() if child.status() != psutil.STATUS_ZOMBIE]
        return found

    def kill(self, rng: random.Random) -> None:
        """End one of the ranks without a warning."""
        if ranks := self.ranks():
            os.kill(rng.choice(ranks).pid, signal.SIGKILL)

    def wait_for(self, step: int, deadline: float) -> bool:
        """Wait until this step is in the metrics."""
        lines = self.run / "metrics.jsonl"
        while time.monotonic() < deadline and any(popen.poll() is None for popen in self.popens):
            if lines.is_file() and len(lines.read_bytes().splitlines()) > step:
                return True
            time.sleep(0.01)
        return False

    def wait(self, deadline: float) -> list[int | None]:
        """The exit codes of the agents; None for those that are still there at the deadline."""
        while time.monotonic() < deadline and any(popen.poll() is None for popen in self.popens):
            time.sleep(0.05)
        return [popen.poll() for popen in self.popens]

    def end(self) -> None:
        for agent, popen in zip(self.processes, self.popens, strict=True):
            if popen.poll() is None:
                for child in (*agent.children(recursive=True), agent):
                    child.kill()
            popen.wait()


@pytest.fixture
def agents() -> Iterator[Callable[..., Agents]]:
    started: list[Agents] = []

    def start(*arguments: Any, **options: Any) -> Agents:
        started.append(Agents(*arguments, **options))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.fixture
def recipe(make_recipe: Any) -> Path:
    def change(tree: dict[str, Any]) -> None:
        tree["train"].update(max_steps=STEPS, save_every=SAVED_EVERY, lr_schedule={"lr_schedule": "constant"})

    path: Path = make_recipe(change)
    load_recipe(str(path), trust=True)
    return path


def results(run: Path) -> tuple[list[list[float]], dict[str, bytes]]:
    """What must be equal to the last bit: lines of metrics, and the weights of the last checkpoint."""
    last = Checkpoints(run).latest()
    assert last is not None
    lines = [[record[name] for name in EXACT] for record in read_metrics(run)]
    weights = {name: tensor.numpy().tobytes() for name, tensor in read_weights(last / "model.safetensors").items()}
    return lines, weights


def disturbed(agents: Callable[..., Agents], seed: int, kind: str, nodes: int, recipe: Path, run: Path) -> Agents:
    """A run in which a rank is killed at a random step, and another one at a random time of the restart."""
    rng, deadline = random.Random(seed), time.monotonic() + LIMIT
    started = agents(kind, nodes, recipe, run)
    assert started.wait_for(rng.randint(1, STEPS - 20), deadline), started.output.read_text()
    started.kill(rng)
    time.sleep(rng.uniform(0.3, 6))
    started.kill(rng)
    codes = started.wait(deadline)
    assert codes == [0] * nodes, f"seed {seed}, {kind}, {nodes} agents: {codes}\n{started.output.read_text()}"
    return started


def equals_the_uninterrupted(launch: Callable[..., Any], recipe: Path, killed: Path) -> None:
    """Train in two processes that nothing disturbs, and compare."""
    port, run = free_port(), killed.with_name("whole")
    whole = [launch(recipe, run, rank=rank, size=2, port=port) for rank in range(2)]
    assert [rank.wait(LIMIT)[0] for rank in whole] == [0, 0]
    assert results(killed) == results(run)


@pytest.mark.scale
def test_killed_ranks_restart(
    agents: Callable[..., Agents], launch: Callable[..., Any], recipe: Path, tmp_path: Path
) -> None:
    disturbed(agents, 1, "static", 1, recipe, tmp_path / "killed")
    equals_the_uninterrupted(launch, recipe, tmp_path / "killed")


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("kind", ["static", "c10d"])
@pytest.mark.parametrize("seed", range(5))
def test_twenty_of_twenty_restart(
    agents: Callable[..., Agents],
    launch: Callable[..., Any],
    recipe: Path,
    tmp_path: Path,
    kind: str,
    nodes: int,
    seed: int,
    record_property: Callable[[str, object], None],
) -> None:
    start = time.monotonic()
    disturbed(agents, 10 * seed + 2 * nodes + (kind == "c10d"), kind, nodes, recipe, tmp_path / "killed")
    record_property("seconds", time.monotonic() - start)
    equals_the_uninterrupted(launch, recipe, tmp_path / "killed")
