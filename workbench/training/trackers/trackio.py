"""Trackio: a dashboard on this machine, of Hugging Face (`trackio show`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.core.options.bounds import Name
from workbench.training.tracker import TrackedRun, Tracker


class TrackioTracker(Tracker):
    """Metrics and the recipe in a project of Trackio. A run has the name of its folder with the start of its id.

    Args:
        project: of Trackio. Its environment variables decide where it is (`TRACKIO_DIR`, `TRACKIO_SPACE_ID`).
    """

    library = "trackio"

    def __init__(self, project: Name = "workbench") -> None:
        self.project = project

    def begin(self, run: TrackedRun) -> None:
        import trackio

        own: dict[str, Any] = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
        self.run = trackio.init(project=self.project, name=run.name, resume="allow", config=dict(run.parameters), **own)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.run.log(dict(metrics), step=step)

    def end(self, failed: bool) -> None:
        self.run.finish()
