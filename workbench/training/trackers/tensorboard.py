"""TensorBoard: files in the folder `tensorboard` of the run."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping

from workbench.runs.names import TENSORBOARD
from workbench.training.tracker import TrackedRun, Tracker


class TensorboardTracker(Tracker):
    """Scalars, and the recipe as a text. A run that resumes hides what was written after its checkpoint."""

    library = "tensorboard"

    def begin(self, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter  # an installation of other versions fails here

        self._hook = threading.excepthook
        self.board = SummaryWriter(str(run.folder / TENSORBOARD), purge_step=run.step + 1)
        threading.excepthook = self._thread_failed
        if not run.step:
            listed = json.dumps(dict(run.parameters), indent=1, default=str)
            self.board.add_text("recipe", "".join(f"    {line}\n" for line in listed.splitlines()))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self.board.add_scalar(name, value, step)

    def end(self, failed: bool) -> None:
        threading.excepthook = self._hook
        self.board.close()

    def _thread_failed(self, failed: threading.ExceptHookArgs) -> None:
        """TensorBoard's thread passes an error of the disk to the next write, so its traceback is not shown."""
        if not isinstance(failed.exc_value, OSError):
            self._hook(failed)
