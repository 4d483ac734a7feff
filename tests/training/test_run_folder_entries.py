"""An entry of a run folder of the wrong kind (file or folder) is refused by its name, and never waited for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import workbench
from workbench.core.errors import MachineError, WorkbenchError
from workbench.recipe.spec import Recipe
from workbench.runs import checkpoint
from workbench.runs.checkpoints import Checkpoints
from workbench.training.pretrain import pretrain

FILES = ("recipe.yaml", "tokenizer.json", "data.json", "metrics.jsonl", "log.txt", ".lock")
CHECKPOINT = ("state.json", "model.safetensors", "trainer.pt")


def dangling(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


def put(make: Callable[[Path], object], path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    make(path)


@pytest.fixture
def run(recipe: Recipe, tmp_path: Path) -> Path:
    return pretrain(recipe, tmp_path / "run", until=1)


@pytest.mark.parametrize("name", [*FILES, *(f"checkpoints/step-1/{name}" for name in CHECKPOINT)])
def test_no_file(recipe: Recipe, run: Path, name: str) -> None:
    for make, found in ((os.mkfifo, "a pipe or device"), (Path.mkdir, "a folder"), (dangling, "a link to nothing")):
        put(make, run / name)
        with pytest.raises(WorkbenchError, match=rf"^{run / name} is {found}, but must be a file; move it"):
            pretrain(recipe, run, until=2)


@pytest.mark.parametrize("name", ["checkpoints", "checkpoints/step-1", "checkpoints/step-3", "best", "tensorboard"])
def test_no_folder(recipe: Recipe, run: Path, name: str) -> None:
    for make, found in ((os.mkfifo, "a pipe or device"), (Path.touch, "a file"), (dangling, "a link to nothing")):
        put(make, run / name)
        with pytest.raises(WorkbenchError, match=rf"^{run / name} is {found}, but must be a folder; move it"):
            pretrain(recipe, run, until=2)


@pytest.mark.parametrize("name", ["recipe.yaml", "checkpoints/step-1", "checkpoints/step-1/state.json"])
def test_a_pipe_in_a_run_that_is_used(run: Path, name: str) -> None:
    put(os.mkfifo, run / name)
    with pytest.raises(WorkbenchError, match=rf"^{run / name} is a pipe or device"):
        workbench.load(run)


@pytest.mark.parametrize("name", ["step-\u0661\u0662", "step-01", "step-1x", "damaged-step-3"])
def test_names_that_are_no_checkpoints(run: Path, name: str) -> None:
    shutil.copytree(run / "checkpoints" / "step-1", run / "checkpoints" / name)
    assert Checkpoints(run).steps() == [1]


def test_a_full_disk_at_the_first_checkpoint_promises_no_earlier_one(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_weights", full)
    with pytest.raises(MachineError, match="the disk is full") as raised:
        pretrain(recipe, tmp_path / "run", until=1)
    assert "earlier checkpoints" not in str(raised.value)
