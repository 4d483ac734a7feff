"""Callbacks: code that follows a training run from outside, such as an experiment tracker.

class Best(Callback):
    def on_evaluation(self, step, metrics):
        print(step, metrics["held_out/mlm/loss"])

workbench.pretrain("bert-tiny", "runs/bert", callbacks=[Best()])
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from workbench.components.error_context import ErrorContext
from workbench.core.errors import WorkbenchError
from workbench.runs.metrics_file import Record


class Callback:
    """Base class of callbacks. A subclass defines the methods that it needs.

    The methods are called on the main rank alone, between steps. The numbers that they get are on the host already, so
    that a callback causes no wait for the device. A callback cannot change the training.

    An error in a callback ends the run, as in Hugging Face's Trainer and in Lightning. The message names the callback.
    The last checkpoint stays, and the run resumes from it.
    """

    def on_step(self, step: int, metrics: Record) -> None:
        """Called after each step.

        Args:
            step: the number of steps that are finished.
            metrics: the line of metrics.jsonl, where the step has one (`train.log_every`); empty after other steps.
        """

    def on_evaluation(self, step: int, metrics: Record) -> None:
        """Called after each held-out pass (`train.evaluate_every`), with its line of metrics.jsonl."""

    def on_checkpoint(self, step: int, folder: Path) -> None:
        """Called once a checkpoint of this step is complete on the disk (`train.save_every`)."""


class _Named(Callback):
    """A callback of the user. Its errors are reported with its name."""

    def __init__(self, callback: Callback) -> None:
        self.callback, self.error_context = callback, ErrorContext(f"callback {type(callback).__name__}")

    def on_step(self, step: int, metrics: Record) -> None:
        with self.error_context:
            self.callback.on_step(step, metrics)

    def on_evaluation(self, step: int, metrics: Record) -> None:
        with self.error_context:
            self.callback.on_evaluation(step, metrics)

    def on_checkpoint(self, step: int, folder: Path) -> None:
        with self.error_context:
            self.callback.on_checkpoint(step, folder)


def named_callbacks(callbacks: Iterable[Callback]) -> list[Callback]:
    """The callbacks of a user. Their errors name the callback.

    Raises:
        WorkbenchError: one is no `Callback`.
    """
    if not isinstance(callbacks, Iterable):
        raise WorkbenchError(f"callbacks is of type {type(callbacks).__name__}; allowed: a list of workbench.Callback")
    listed = list(callbacks)
    for each in listed:
        if not isinstance(each, Callback):
            wrong = f"the class {each.__name__}" if isinstance(each, type) else f"of type {type(each).__name__}"
            raise WorkbenchError(f"a callback is {wrong}; allowed: objects of a class derived from workbench.Callback")
    return [_Named(each) for each in listed]
