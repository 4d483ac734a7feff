"""MLflow: a stand-in with the calls that are used, and the library itself, which writes into a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.contracts.cases import Curves, TrackerCase
from tests.training.trackers.stand_ins import Runs, stand_in
from workbench.training.trackers.mlflow import TAG


class _Client:
    """MLflow's client, with runs in memory."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id=name) if self.runs.runs else None

    def create_experiment(self, name: str) -> str:
        return name

    def search_runs(self, experiments: list[str], filter_string: str) -> list[Any]:
        assert experiments == ["workbench"]
        return [self._run(name) for name in self.runs.runs if filter_string == f"tags.`{TAG}` = '{name}'"]

    def create_run(self, experiment: str, run_name: str, tags: dict[str, str]) -> Any:
        self.runs.opened(tags[TAG], {})
        return self._run(tags[TAG])

    def update_run(self, run_id: str, status: str) -> None:
        assert status == "RUNNING"
        self.runs.opened(run_id, {})

    def log_batch(self, run_id: str, metrics: tuple[Any, ...] = (), params: tuple[Any, ...] = ()) -> None:
        assert len(params) <= 100
        run = self.runs.runs[run_id]
        run.config.update(params)
        for name, value, _, step in metrics:
            run.log({name: value}, step)

    def log_artifact(self, run_id: str, path: str) -> None:
        assert path.endswith("recipe.yaml")

    def set_terminated(self, run_id: str, status: str) -> None:
        self.runs.runs[run_id].finish()

    def _run(self, name: str) -> Any:
        return SimpleNamespace(info=SimpleNamespace(run_id=name))


def _stand_in(_: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[tuple[dict[str, Any], Curves]]]:
    runs = Runs()
    stand_in(monkeypatch, "mlflow", MlflowClient=lambda: _Client(runs))
    entities = {"Metric": lambda *values: values, "Param": lambda *values: values}
    stand_in(monkeypatch, "mlflow.entities", **entities)
    return runs.read


def _real(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[tuple[dict[str, Any], Curves]]]:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (folder / "mlruns").as_uri())

    def read() -> list[tuple[dict[str, Any], Curves]]:
        client = mlflow.MlflowClient()
        runs = client.search_runs([client.get_experiment_by_name("workbench").experiment_id])
        return [
            (
                run.data.params,
                {
                    name: [(each.step, each.value) for each in client.get_metric_history(run.info.run_id, name)]
                    for name in run.data.metrics
                },
            )
            for run in runs
        ]

    return read


CASES = {"": TrackerCase(world=_real), "stand-in": TrackerCase(world=_stand_in)}
