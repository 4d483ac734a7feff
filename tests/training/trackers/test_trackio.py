"""Trackio: a stand-in with the calls that are used, and the library itself, which writes into a folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.cases import Curves, TrackerCase
from tests.training.trackers.stand_ins import Runs, stand_in


def _stand_in(_: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[tuple[dict[str, Any], Curves]]]:
    runs = Runs()

    def init(project: str, name: str, resume: str, config: dict[str, Any], **_: Any) -> Any:
        assert (project, resume) == ("workbench", "allow")
        return runs.opened(name, config)

    stand_in(monkeypatch, "trackio", init=init)
    return runs.read


def _real(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[tuple[dict[str, Any], Curves]]]:
    pytest.importorskip("trackio")
    from trackio import sqlite_storage, utils

    for module in (sqlite_storage, utils):
        monkeypatch.setattr(module, "TRACKIO_DIR", folder / "trackio")

    def read() -> list[tuple[dict[str, Any], Curves]]:
        found = []
        for name in sqlite_storage.SQLiteStorage.get_runs("workbench"):
            curves: Curves = defaultdict(list)
            for line in sqlite_storage.SQLiteStorage.get_logs("workbench", name):
                for metric in line.keys() - {"timestamp", "step"}:
                    curves[metric].append((line["step"], line[metric]))
            config = sqlite_storage.SQLiteStorage.get_run_config("workbench", name)
            found.append(({key: value for key, value in config.items() if not key.startswith("_")}, curves))
        return found

    return read


CASES = {"": TrackerCase(world=_real), "stand-in": TrackerCase(world=_stand_in)}
