"""MLflow."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from workbench.core.options.bounds import Name
from workbench.runs.names import RECIPE
from workbench.training.tracker import TrackedRun, Tracker

TAG = "workbench.run"
"""The tag of MLflow's run with the id of ours."""
MOST, LONGEST = 100, 500
"""Parameters of a request, and characters of a value, that every server takes."""


class MlflowTracker(Tracker):
    """Metrics, the values of the recipe and its file in a run of MLflow, which has the id of the run in a tag.

    Args:
        experiment: of MLflow. Its environment variables decide where it is (`MLFLOW_TRACKING_URI`).
    """

    library = "mlflow"

    def __init__(self, experiment: Name = "workbench") -> None:
        self.experiment = experiment

    def begin(self, run: TrackedRun) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self.client, self.metric = MlflowClient(), Metric
        found = self.client.get_experiment_by_name(self.experiment)
        experiment = self.client.create_experiment(self.experiment) if found is None else found.experiment_id
        earlier = self.client.search_runs([experiment], f"tags.`{TAG}` = '{run.id}'")
        if earlier:
            self.id = earlier[0].info.run_id
            self.client.update_run(self.id, status="RUNNING")
            return
        self.id = self.client.create_run(experiment, run_name=run.name, tags={TAG: run.id}).info.run_id
        values = {re.sub(r"[^\w.\- /]", "_", key): str(value)[:LONGEST] for key, value in run.parameters.items()}
        parameters = [Param(key, value) for key, value in values.items()]
        for first in range(0, len(parameters), MOST):
            self.client.log_batch(self.id, params=parameters[first : first + MOST])
        self.client.log_artifact(self.id, str(run.folder / RECIPE))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        self.client.log_batch(self.id, [self.metric(name, value, now, step) for name, value in metrics.items()])

    def end(self, failed: bool) -> None:
        self.client.set_terminated(self.id, "FAILED" if failed else "FINISHED")
