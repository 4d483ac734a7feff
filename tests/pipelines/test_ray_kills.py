"""Preparation on a Ray cluster whose workers, drivers and nodes are killed: it ends in the same bytes."""

from __future__ import annotations

import hashlib
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipelines.preparing.engines import ray_cluster

TRIALS = 20
WORDS = [f"w{i}" for i in range(2000)]
LIMIT = 240
"""Seconds for one command."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without cores, and two nodes of one core."""
    pytest.importorskip("ray")
    os.environ.update(ray_cluster.ENVIRONMENT)
    from ray.cluster_utils import Cluster

    logging.getLogger("ray").setLevel(logging.ERROR)
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 80 << 20}
    made = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        add_node(made)
    yield made
    made.shutdown()


def add_node(cluster: Any) -> None:
    cluster.add_node(num_cpus=1, object_store_memory=80 << 20)


def digest(folder: Path) -> dict[str, str]:
    return {
        p.name: hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.iterdir())
        if p.suffix in (".tar", ".index", ".json")
    }


def command(folder: Path, output: str, *options: str) -> list[str]:
    call = [sys.executable, "-m", "workbench", "prepare", "text", str(folder / "docs.txt"), "--dedupe"]
    return [*call, "--output", str(folder / output), "--shard-size", "50", "--workers", "2", *options]


def start(arguments: list[str]) -> subprocess.Popen[str]:
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    pipe = subprocess.PIPE
    return subprocess.Popen(arguments, env=environment, cwd=root, text=True, stdout=pipe, stderr=pipe)


def workers() -> list[psutil.Process]:
    """The processes of actors."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if "ray::UnitActor" in " ".join(process.info["cmdline"] or ()):
            found.append(process)
    return found


def kill(kind: str, process: subprocess.Popen[str], cluster: Any, rng: random.Random) -> None:
    if kind == "driver":
        process.kill()
    elif kind == "node":
        cluster.remove_node(rng.choice(sorted(cluster.worker_nodes, key=id)), allow_graceful=False)
        add_node(cluster)
    else:
        for victim in rng.sample(workers(), 1):
            victim.send_signal(signal.SIGKILL)


@pytest.mark.scale
def test_kills_end_in_the_same_bytes(cluster: Any, tmp_path: Path) -> None:
    rng = random.Random(33)
    texts = (" ".join(rng.choices(WORDS, k=rng.randint(20, 400))) for _ in range(2000))
    (tmp_path / "docs.txt").write_text("\n\n".join(texts))
    made = start(command(tmp_path, "whole"))
    assert made.wait(LIMIT) == 0, made.communicate()
    wanted = digest(tmp_path / "whole")
    assert len(wanted) == 81
    wanted.pop("corpus.json")  # it has the command
    kinds = {"worker": 0, "driver": 0, "node": 0}
    for number in range(TRIALS):
        kind, shards = rng.choice(list(kinds)), rng.randint(0, 30)
        kinds[kind] += 1
        arguments = command(tmp_path, f"trial-{number}", "--engine", "ray", "--address", cluster.address)
        process = start(arguments)
        output = tmp_path / f"trial-{number}"
        while process.poll() is None and (len(list(output.glob("*.index"))) < shards or not workers()):
            time.sleep(0.01)
        time.sleep(rng.random() * 0.3)
        kill(kind, process, cluster, rng)
        said = process.communicate(timeout=LIMIT)[1]
        if kind == "driver":
            process = start(arguments)
            said = process.communicate(timeout=LIMIT)[1]
        assert process.returncode == 0, f"trial {number}, {kind}: {said}"
        found = digest(output)
        found.pop("corpus.json")
        assert found == wanted, f"trial {number}, {kind}"
    assert all(kinds.values()), kinds
