"""Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.core.options.bounds import Name
from workbench.runs.names import RECIPE
from workbench.training.tracker import TrackedRun, Tracker


class WandbTracker(Tracker):
    """Metrics, the values of the recipe and its file in a run of Weights & Biases, which has the id of the run.

    Args:
        project: of Weights & Biases. Its environment variables decide the rest (`WANDB_ENTITY`, `WANDB_MODE=offline`).
    """

    library = "wandb"

    def __init__(self, project: Name = "workbench") -> None:
        self.project = project

    def begin(self, run: TrackedRun) -> None:
        import wandb

        self.run = wandb.init(
            project=self.project,
            id=run.id,
            name=run.name,
            resume="allow",
            dir=str(run.folder),
            config=dict(run.parameters),
            settings=wandb.Settings(silent=True),
        )
        self.run.save(str(run.folder / RECIPE), base_path=str(run.folder))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.run.log(dict(metrics), step=step)

    def end(self, failed: bool) -> None:
        self.run.finish(exit_code=int(failed))
