"""Checkpoints that are written by several ranks, and read by any number of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from tests.runs.gloo_ranks import Phase, on_ranks
from tests.runs.sharded_models import (
    resume,
    resume_cut,
    save_and_continue,
    save_cut,
    save_watched,
    save_with_a_full_disk,
)
from workbench.core.errors import WorkbenchError
from workbench.runs.checkpoint import read_checkpoint, read_state
from workbench.runs.checkpoints import Checkpoints


def saving(size: int, way: str, run: Path, **options: bool) -> Phase:
    return Phase(size, save_and_continue, (run, way, options))


def resuming(size: int, way: str, *runs: Path, exact: bool = False) -> Phase:
    return Phase(size, resume, (list(runs), way, exact))


@pytest.mark.scale
def test_a_checkpoint_of_four_ranks_is_resumed_by_any_number(tmp_path: Path) -> None:
    run, alone = tmp_path / "run", tmp_path / "alone"
    phases = [
        saving(4, "full", run),
        saving(1, "none", alone),
        resuming(4, "full", run, exact=True),
        resuming(3, "full", run, alone),
        resuming(4, "node", run, alone),
        resuming(1, "none", run, alone),
    ]
    on_ranks(phases, tmp_path / "ranks")
    folder = run / "checkpoints" / "step-2"
    assert sorted(path.name for path in folder.iterdir()) == ["model-pieces", "state.json", "trainer-pieces"]
    assert len(list(folder.glob("*/rank-*.safetensors"))) == 8
    assert read_state(folder)["tied"] == {"decoder.weight": "table.weight"}
    assert [path.name for path in (run / "best").iterdir()] == [path.name for path in (alone / "best").iterdir()]


@pytest.mark.parametrize("background", [False, True])
def test_a_kill_at_any_instant_leaves_a_whole_checkpoint(tmp_path: Path, background: bool) -> None:
    run, snapshots = tmp_path / "run", tmp_path / "snapshots"
    on_ranks([Phase(2, save_watched, (run, snapshots, background))], tmp_path / "ranks")
    expected = [torch.load(tmp_path / f"weights-{step}.pt", weights_only=True) for step in (1, 2)]
    left, found = list(snapshots.glob("*/*")), set()
    assert len(left) > 15
    for folder in [*left, run]:
        checkpoints = Checkpoints(folder)
        checkpoints.clean()
        whole = checkpoints.whole()
        assert whole.path is not None, folder
        assert not whole.damaged, folder
        weights = read_checkpoint(whole.path)
        assert all(torch.equal(weights[name], tensor) for name, tensor in expected[whole.step - 1].items()), folder
        assert not list(folder.rglob("*.tmp")), folder
        found.add(whole.step)
    assert found == {1, 2}
    assert whole.step == 2


def test_a_rank_that_cannot_write_ends_the_save_on_all(tmp_path: Path) -> None:
    phases = [Phase(2, save_with_a_full_disk, (tmp_path / str(i), bool(i))) for i in range(2)]
    on_ranks(phases, tmp_path / "ranks")


def test_a_file_of_a_rank_that_is_missing_or_changed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    on_ranks([Phase(2, save_watched, (run, tmp_path / "snapshots", False))], tmp_path / "ranks")
    for name in ("model-pieces/rank-00001.safetensors", "trainer-pieces/rank-00000.safetensors"):
        for damage in (lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-1])):
            folder = shutil.copytree(run, tmp_path / "damaged", dirs_exist_ok=True) / "checkpoints" / "step-2"
            damage(folder / name)
            with pytest.raises(WorkbenchError, match=f"step-2 is no whole checkpoint: {name}"):
                Checkpoints(tmp_path / "damaged").whole()
            with pytest.raises(WorkbenchError, match=r"Restore it from a copy, or move it away"):
                read_checkpoint(folder)
            shutil.rmtree(tmp_path / "damaged")


@pytest.mark.scale
def test_parameters_that_tensor_parallelism_cuts(tmp_path: Path) -> None:
    """They are stored in their own order, whatever the order of the heads on the ranks."""
    sizes = {1: 1, 2: 2, 4: 2}
    runs = [tmp_path / str(size) for size in sizes]
    saved = [Phase(size, save_cut, (run, tensor)) for run, (size, tensor) in zip(runs, sizes.items(), strict=True)]
    resumed = [Phase(size, resume_cut, (runs, tensor)) for size, tensor in sizes.items()]
    on_ranks([*saved, *resumed], tmp_path / "ranks")
    one, *others = [read_checkpoint(run / "checkpoints" / "step-1") for run in runs]
    for other in others:
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], tensor) for name, tensor in other.items())


WAYS = [(size, way) for size in (1, 2, 3, 4) for way in ("full", "node", "none") if (size, way) != (3, "node")]


@pytest.mark.scale
@pytest.mark.parametrize("saved", [(4, "full"), (4, "node"), (2, "full"), (1, "none"), (2, "none")])
def test_any_ranks_resume_what_any_ranks_saved(tmp_path: Path, saved: tuple[int, str]) -> None:
    run = tmp_path / "run"
    resumed = [resuming(size, way, run, exact=(size, way) == saved) for size, way in WAYS]
    on_ranks([saving(*saved, run, background=True), *resumed], tmp_path / "ranks")
