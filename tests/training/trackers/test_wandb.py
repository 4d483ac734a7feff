"""Weights & Biases: a stand-in with the calls that are used, and the library itself without a network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.cases import Curves, TrackerCase
from tests.training.trackers.stand_ins import Runs, stand_in
from workbench.components.building import build
from workbench.training.tracker import TrackedRun


def _stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[tuple[dict[str, Any], Curves]]]:
    runs = Runs()

    def init(id: str, dir: str, resume: str, config: dict[str, Any], **_: Any) -> Any:
        assert resume == "allow"
        assert Path(dir).is_relative_to(folder)
        return runs.opened(id, config)

    stand_in(monkeypatch, "wandb", init=init, Settings=dict)
    return runs.read


CASES = {"stand-in": TrackerCase(world=_stand_in)}


@pytest.mark.slow
def test_the_library_takes_the_calls_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    (tmp_path / "recipe.yaml").write_text("name: it\n")
    for step in (0, 2):
        tracker = build("tracker", "wandb")
        tracker.begin(TrackedRun("bert-0000", "0" * 32, tmp_path, step, {"train.lr": 0.5}))
        tracker.log(step + 1, {"mlm/loss": 1.0})
        tracker.end(False)
    written = [*(tmp_path / "wandb").glob(f"offline-run-*-{'0' * 32}/*.wandb")]
    assert len(written) == 2
    assert all(b"mlm/loss" in file.read_bytes() for file in written)
