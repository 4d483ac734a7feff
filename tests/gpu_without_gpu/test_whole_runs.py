"""Whole runs through the product's own commands, with everything on: the meter, held-out losses, checkpoints, reports.

A recipe for each kernel of attention, on one device and on two.
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_without_gpu.conftest import Run
from tests.recipes.test_recipes import small_recipe
from workbench.recipe.trees import dump_recipe
from workbench.runs.metrics_file import read_metrics

pytestmark = pytest.mark.simulator

EMULATED = ("-m", "tests.gpu_without_gpu.emulated")
STEPS = 4


def written(name: str, world: Any, folder: Path, **train: Any) -> str:
    """A small recipe as a file, with held-out losses, a checkpoint on the way and a line of metrics a step."""
    recipe = small_recipe(name, world)
    for network in recipe.networks.values():
        network.init_from.clear()
    for task in recipe.tasks.values():
        task.held_out[:] = list(task.corpora)
    changed = {
        "max_steps": STEPS,
        "log_every": 1,
        "evaluate_every": 2,
        "save_every": 2,
        "groups": [],
        "train_only": [],
        "lr_schedule": {"lr_schedule": "linear", "warmup_steps": 1},
        **train,
    }
    recipe = dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, **changed))
    file = folder / f"{name}.yaml"
    file.write_text(dump_recipe(recipe))
    return str(file)


def checked(run: Path) -> list[dict[str, Any]]:
    """The lines of a finished run, all of whose numbers are finite."""
    lines: list[dict[str, Any]] = read_metrics(run)
    numbers = [(key, value) for line in lines for key, value in line.items() if isinstance(value, float)]
    assert not [pair for pair in numbers if not math.isfinite(pair[1])]
    assert lines[-1]["step"] == STEPS
    return lines


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("bert", ["evaluate pseudo-perplexity"]),
        ("gpt", ["evaluate perplexity", "generate"]),
        pytest.param("k-bert", ["evaluate pseudo-perplexity"], marks=pytest.mark.slow),
        pytest.param("modernbert", ["evaluate pseudo-perplexity"], marks=pytest.mark.slow),
        pytest.param("transformer-xl", ["evaluate perplexity", "generate"], marks=pytest.mark.slow),
        pytest.param("t5", ["evaluate perplexity", "generate"], marks=pytest.mark.slow),
        pytest.param("clip", ["evaluate retrieval"], marks=pytest.mark.slow),
    ],
)
def test_a_run_on_one_device(name: str, after: list[str], world: Any, on_device: Run, tmp_path: Path) -> None:
    recipe = written(name, world, tmp_path)
    run = tmp_path / "run"
    words = ["pretrain", recipe, "--output", str(run), "train.num_workers=1"]
    for command in after:
        corpus = world.images if name == "clip" else world.plain
        words += ["++", *command.split(), str(run), str(corpus)]
        words += ["--max-new-tokens", "4", "--output", str(tmp_path / "texts.jsonl")] if command == "generate" else []
    words += ["++", "report", str(run), "--output", str(tmp_path / "report.html")]
    on_device(*EMULATED, *words)
    lines = checked(run)
    trained = [line for line in lines if "lr" in line]
    assert all(line["model_flops_utilisation"] > 0 and line["memory_gib"] > 0 for line in trained)
    assert [line["step"] for line in trained] == list(range(1, STEPS + 1))
    assert any(key.startswith("held_out/") for line in lines for key in line)
    results = list((run / "evaluations").glob("*.json"))
    assert len(results) == sum(command.startswith("evaluate") for command in after)
    for result in results:
        numbers = [value for value in json.loads(result.read_text())["numbers"].values() if isinstance(value, float)]
        assert numbers
        assert all(math.isfinite(value) for value in numbers)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "gpt"])
def test_a_resumed_run_equals_an_uninterrupted_one(name: str, world: Any, on_device: Run, tmp_path: Path) -> None:
    """The emulation computes as a CPU does, so here not a bit may differ."""
    recipe = written(name, world, tmp_path)
    done = on_device(*EMULATED, "verify-resume", recipe, "--output", str(tmp_path / "runs"), "--steps", str(STEPS))
    assert "equal" in done.stdout + done.stderr


SHARDED = ["model.streams.entity.trainable=true", "model.streams.entity.rows=sharded"]
"""A table whose rows are exchanged by all-to-all."""


@pytest.mark.slow
@pytest.mark.parametrize("shard", ["none", "full"])
@pytest.mark.parametrize("name", ["bert", "gpt", "k-bert", "clip", "transformer-xl", "ernie-thu"])
def test_two_devices_train_as_one(name: str, shard: str, world: Any, on_device: Run, tmp_path: Path) -> None:
    """Two ranks with half of the lanes each, over NCCL; one rank with all of them."""
    recipe = written(name, world, tmp_path, micro_batch_size=4)
    one, two = tmp_path / "one", tmp_path / "two"
    options = ["train.precision=float32", *(SHARDED if name == "ernie-thu" else [])]
    on_device(*EMULATED, "pretrain", recipe, "--output", str(one), *options)
    launched = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    options.append(f"train.parallel.shard={shard}")
    on_device(*launched, *EMULATED, "pretrain", recipe, "--output", str(two), *options, PRETEND_GPUS="2")
    for a, b in zip(checked(one), checked(two), strict=True):
        losses = [key for key in a if key.endswith(("loss", "grad_norm"))]
        assert losses
        assert {key: b[key] for key in losses} == {key: pytest.approx(a[key], rel=1e-4) for key in losses}


@pytest.mark.parametrize(
    "name",
    [
        "albef",
        pytest.param("cbt", marks=pytest.mark.slow),
        pytest.param("demo-joint", marks=pytest.mark.slow),
        pytest.param("univl", marks=pytest.mark.slow),
    ],
)
def test_no_copy_of_a_micro_batch_outlives_its_step(name: str, world: Any, on_device: Run, tmp_path: Path) -> None:
    """Micro-batches of several views, under shards: only the next one's copy is under way after a step."""
    recipe = written(name, world, tmp_path, micro_batch_size=4, evaluate_every=0)
    counts = tmp_path / "counts"
    launched = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = ["-m", "tests.gpu_without_gpu.pending_copies", "pretrain", recipe, "--output", str(tmp_path / "run")]
    options = ["train.parallel.shard=full", "train.num_workers=1"]
    on_device(*launched, *command, *options, PRETEND_GPUS="2", PENDING_COPIES=str(counts))
    found = [tuple(map(int, line.split())) for line in counts.read_text().splitlines()]
    assert [step for step, _, _ in found] == list(range(1, STEPS + 1))
    assert all(pending <= there for _, pending, there in found), found
