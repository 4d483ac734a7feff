"""Checkpoints that are written by several ranks, and read by any number of them."""

from __future__ import annotations

from pathlib import Path

from tests.runs.gloo_ranks import Phase, on_ranks
from tests.runs.sharded_models import resume, save_and_go_on
from workbench.runs.checkpoint import read_state


def saving(size: int, way: str, run: Path, **options: bool) -> Phase:
    return Phase(size, save_and_go_on, (run, way, options))


def resuming(size: int, way: str, *runs: Path, exact: bool = False) -> Phase:
    return Phase(size, resume, (list(runs), way, exact))


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
