"""What a run measures, as lines of metrics.jsonl and in TensorBoard."""

from __future__ import annotations

import json
import logging
import math
import resource
import shutil
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from workbench.files.drafts import atomic, is_at, write_text
from workbench.runs.metrics import Record, faults, split_lines
from workbench.runs.names import DAMAGED_METRICS, METRICS, TENSORBOARD
from workbench.training.callbacks import Callback
from workbench.training.failures import Spared

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

BOARD = "writing for TensorBoard"
logger = logging.getLogger(__name__)


class MetricsLog(Callback):
    """Appends records to metrics.jsonl and to TensorBoard. Used on the main rank.

    Lines after `step`, written by a run that went on beyond its last checkpoint, are taken out first; damaged ones
    are moved to a file beside it; lines that do not fit the checkpoint stay, with a warning. Where metrics.jsonl cannot
    be written, the run ends; it goes on without TensorBoard.

    Args:
        step: of the checkpoint that the run goes on from.
        logged: the step of the last line of training before it.
        spared: what a run can do without.
    """

    def __init__(self, run: Path, step: int, logged: int, spared: Spared | None = None) -> None:
        self.path, self.spared = run / METRICS, spared or Spared()
        records, damaged = split_lines(self.path)
        if damaged:
            with (run / DAMAGED_METRICS).open("ab") as aside:
                aside.writelines(damaged)
            logger.warning("%s: %d damaged lines were moved to %s", self.path, len(damaged), DAMAGED_METRICS)
        records = [record for record in records if record["step"] <= step]
        for fault in faults(records, logged):
            logger.warning("%s does not fit the checkpoint of step %d: %s", self.path, step, fault)
        write_text(self.path, "".join(json.dumps(record) + "\n" for record in records))
        self.file = self.path.open("a+b")
        self._odd: set[str] = set()  # names that were not finite
        self._hook = threading.excepthook
        threading.excepthook = self._thread_failed
        self.board: SummaryWriter | None = None
        with self.spared(BOARD):
            from torch.utils.tensorboard import SummaryWriter  # an installation of other versions fails here

            self.board = SummaryWriter(str(run / TENSORBOARD), purge_step=step + 1)

    def on_step(self, step: int, metrics: Record) -> None:
        if metrics:
            self.write(metrics)

    def on_evaluation(self, step: int, metrics: Record) -> None:
        self.write(metrics)

    def write(self, record: Record) -> None:
        """Append a line. What is no finite number, as JSON has none other, is left out of it, with a warning."""
        finite = {name: value for name, value in record.items() if math.isfinite(value)}
        for name in record.keys() - finite.keys() - self._odd:
            logger.warning("step %d: %s is %s; metrics.jsonl leaves it out", record["step"], name, record[name])
        self._odd |= record.keys() - finite.keys()
        record = finite
        self._stay()
        self.file.write(json.dumps(record, allow_nan=False).encode() + b"\n")
        self.file.flush()
        if self.board is None or BOARD in self.spared.failed:
            return
        with self.spared(BOARD):
            for name, value in record.items():
                if name != "step" and isinstance(value, int | float):
                    self.board.add_scalar(name, value, record["step"])

    def close(self) -> None:
        threading.excepthook = self._hook
        try:
            self._stay()
        finally:
            self.file.close()
            with self.spared(BOARD):
                if self.board is not None:
                    self.board.close()

    def _stay(self) -> None:
        """Where the file was removed or replaced, write all lines again: what goes to the old one, nobody finds."""
        if is_at(self.file, self.path):
            return
        self.file.seek(0)
        with atomic(self.path) as again:
            shutil.copyfileobj(self.file, again)
        self.file.close()
        self.file = self.path.open("a+b")
        logger.warning("%s was removed or replaced while the run writes it; its lines are written again", self.path)

    def _thread_failed(self, failed: threading.ExceptHookArgs) -> None:
        """TensorBoard's thread hands an error of the disk on to the next write: a traceback beside it tells nothing."""
        if not isinstance(failed.exc_value, OSError):
            self._hook(failed)


def memory_gib(device: torch.device) -> float:
    """The most memory this process has held: on the CUDA device, or resident on the host."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30
