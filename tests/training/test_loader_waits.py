"""A run that waits for its loader: signals are obeyed, held-out passes begin at once, and little is needed for it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.training.short_runs import losses, shorter
from tests.training.test_kill import wait_for_step
from tests.training.test_ranks import free_port
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.pretraining import workers
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.metrics_file import read_metrics
from workbench.training.pretrain import Stopped, pretrain

Launch = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[2]


def hanging(world_folder: Path, **how: Any) -> Callable[[dict[str, Any]], None]:
    """A worker that never comes back, from a micro-batch on."""

    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["sequence"]["transforms"] = [
            {"transform": "toy_components:FaultyStep", "how": "hang", **how}
        ]
        tree["tasks"]["text"]["held_out"] = [str(world_folder / "held-out")]
        tree["train"].update(num_workers=1, evaluate_every=2 if how.get("split") else 0, save_every=1000)

    return change


def signal_after(run: Path, step: int, number: int) -> threading.Thread:
    """Sends this process a signal once a step is finished."""

    def wait() -> None:
        while not any(record["step"] >= step for record in read_metrics(run)):
            time.sleep(0.01)
        time.sleep(0.3)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("how", "step"), [({"after": 3}, 3), ({"after": 1, "split": 1}, 2)], ids=["training", "held-out pass"]
)
def test_a_signal_saves_although_a_worker_hangs(
    make_recipe: Any, world_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Any, step: int
) -> None:
    monkeypatch.setattr(workers, "GRACE", 1.0)
    recipe, run = load_recipe(str(make_recipe(hanging(world_folder, **how))), trust=True), tmp_path / "run"
    signal_after(run, step, signal.SIGTERM)
    with pytest.raises(Stopped) as stopped:
        pretrain(recipe, run)
    assert stopped.value.code == 128 + signal.SIGTERM
    assert Checkpoints(run).steps() == [step]
    assert [record["step"] for record in read_metrics(run)] == list(range(1, step + 1))
    assert f"a micro-batch does not come: step {step + 1} is not made" in (run / "log.txt").read_text()


@pytest.mark.scale
def test_all_ranks_leave_together(make_recipe: Any, world_folder: Path, launch: Launch, tmp_path: Path) -> None:
    """One waits for its loader, the other for that rank."""
    recipe, run = make_recipe(hanging(world_folder, after=3, lane=1)), tmp_path / "run"
    port = free_port()
    ranks = [launch(recipe, run, rank=rank, size=2, port=port) for rank in range(2)]
    wait_for_step(run, 3, ranks[0])
    for rank in ranks:
        rank.signal(signal.SIGTERM)
    for rank in ranks:
        code, output = rank.wait()
        assert code == 128 + signal.SIGTERM, output
        assert "Traceback" not in output
    assert Checkpoints(run).steps() == [3]


def test_training_and_held_out_passes_share_their_workers(
    recipe: Recipe, world_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are forked once, before the run has threads."""
    started: list[tuple[int, list[str]]] = []
    start = workers.Workers._start

    def noted(self: workers.Workers, number: int) -> None:
        started.append((number, [thread.name for thread in threading.enumerate()]))
        start(self, number)

    monkeypatch.setattr(workers.Workers, "_start", noted)
    with_pass = replace(recipe.tasks["text"], held_out=[str(world_folder / "held-out")])
    recipe = replace(recipe, tasks={"text": with_pass})
    runs = {
        count: pretrain(shorter(recipe, max_steps=6, evaluate_every=1, num_workers=count), tmp_path / str(count))
        for count in (0, 2)
    }
    assert [number for number, _ in started] == [0, 1]
    assert not any("loader" in names or "pin" in " ".join(names) for _, names in started)
    for name in ("mlm/loss", "held_out/mlm/loss"):
        assert losses(runs[2], name) == losses(runs[0], name)
    assert len(losses(runs[2], "held_out/mlm/loss")) == 6


@pytest.mark.parametrize("count", [0, 1])
def test_a_held_out_record_that_is_skipped_counts_once_a_pass(
    make_recipe: Any, world_folder: Path, tmp_path: Path, count: int
) -> None:
    """The same few bad records would end a long run, as its workers stay."""
    damaged = tmp_path / "damaged"
    shutil.copytree(world_folder / "held-out", damaged)
    corpus = Corpus.open(damaged)
    shard = next(damaged.glob("*.tar"))
    content = shard.read_bytes()
    at = content.index(b'{"', content.index(b"r3.json") if b"r3.json" in content else 0)
    shard.write_bytes(content[:at] + b"\xff\xfe!" + content[at + 3 :])
    assert corpus.shards

    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["held_out"] = [str(damaged)]
        tree["train"].update(max_steps=5, evaluate_every=1, num_workers=count, verify=False, lr_schedule="linear")
        tree["train"].update(on_error="skip", skip_limit=1)

    run = pretrain(load_recipe(str(make_recipe(change))), tmp_path / "run")
    assert len(losses(run, "held_out/mlm/loss")) == 5
    skipped_twice = yaml.safe_load(make_recipe(change, "none").read_text())
    skipped_twice["train"]["skip_limit"] = 0
    (tmp_path / "none.yaml").write_text(yaml.safe_dump(skipped_twice))
    with pytest.raises(WorkbenchError, match="more than 0 samples could not be read"):
        pretrain(load_recipe(str(tmp_path / "none.yaml")), tmp_path / "refused")


@pytest.mark.slow
def test_a_full_shared_memory_is_no_matter(make_recipe: Any, tmp_path: Path) -> None:
    """As in a container, whose /dev/shm is small; here it is full."""

    def change(tree: dict[str, Any]) -> None:
        tree["train"].update(max_steps=3, num_workers=2, lr_schedule="linear")

    script = (
        "mount -t tmpfs -o size=4k tmpfs /dev/shm && head -c 4096 /dev/zero > /dev/shm/full && "
        f"exec {sys.executable} -m workbench pretrain {make_recipe(change)} --run {tmp_path / 'run'}"
    )
    if os.geteuid():
        pytest.skip("NOT TESTED: a full /dev/shm needs the right to mount a tmpfs")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert len(losses(tmp_path / "run")) == 3
