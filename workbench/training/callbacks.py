"""Callbacks: code that follows a training run from outside. A callback can stop the run, and changes nothing else.

class Best(Callback):
    def on_evaluation(self, step, metrics):
        print(step, metrics["held_out/mlm/loss"])
        return STOP if metrics["held_out/mlm/loss"] < 1 else None

workbench.pretrain("bert-tiny", "runs/bert", callbacks=[Best()])
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any

from workbench.components.error_context import ErrorContext
from workbench.core.errors import WorkbenchError, unknown
from workbench.runs.metrics_file import Record


class Stop(Enum):
    """The type of `STOP`."""

    STOP = "stop"


STOP = Stop.STOP
"""The answer of a callback that ends the run."""


class Callback:
    """Base class of callbacks. A subclass defines the methods that it needs.

    The methods are called on the main rank alone, between steps. The numbers that they get are on the host already, so
    that a callback causes no wait for the device. A method returns None, or `STOP`: then all ranks save a checkpoint of
    the step and end the run. `STOP` from `on_checkpoint` ends it after the next step.

    An error in a callback ends the run, as in Hugging Face's Trainer and in Lightning. The message names the callback.
    The last checkpoint stays, and the run resumes from it.
    """

    def on_step(self, step: int, metrics: Record) -> Stop | None:
        """Called after each step.

        Args:
            step: the number of steps that are finished.
            metrics: the line of metrics.jsonl, where the step has one (`train.log_every`); empty after other steps.
        """

    def on_evaluation(self, step: int, metrics: Record) -> Stop | None:
        """Called after each held-out pass (`train.evaluate_every`), with its line of metrics.jsonl."""

    def on_checkpoint(self, step: int, folder: Path) -> Stop | None:
        """Called once a checkpoint of this step is complete on the disk (`train.save_every`)."""


METHODS = ("on_step", "on_evaluation", "on_checkpoint")


class UserCallbacks(Callback):
    """The callbacks of a user, called one after another. Their errors name the callback.

    Attributes:
        stopped_by: the callback that returned `STOP`; empty if none did.

    Raises:
        WorkbenchError: one is no `Callback`, or has a method `on_...` that is never called.
    """

    def __init__(self, callbacks: Iterable[Callback] = ()) -> None:
        if not isinstance(callbacks, Iterable):
            raise WorkbenchError(
                f"callbacks is of type {type(callbacks).__name__}; allowed: a list of workbench.Callback"
            )
        self.callbacks = list(callbacks)
        for each in self.callbacks:
            _check(each)
        self.stopped_by = ""

    def on_step(self, step: int, metrics: Record) -> None:
        self._call("on_step", step, metrics)

    def on_evaluation(self, step: int, metrics: Record) -> None:
        self._call("on_evaluation", step, metrics)

    def on_checkpoint(self, step: int, folder: Path) -> None:
        self._call("on_checkpoint", step, folder)

    def _call(self, method: str, *arguments: Any) -> None:
        for callback in self.callbacks:
            name = f"callback {type(callback).__name__}"
            with ErrorContext(name):
                answer = getattr(callback, method)(*arguments)
            if answer is STOP:
                self.stopped_by = self.stopped_by or name
            elif answer is not None:
                raise WorkbenchError(f"{name}: {method} returned {answer!r}; allowed: None or workbench.STOP")


def _check(callback: object) -> None:
    """Check that each method of a callback is called at some time."""
    if not isinstance(callback, Callback):
        wrong = f"the class {callback.__name__}" if isinstance(callback, type) else f"of type {type(callback).__name__}"
        raise WorkbenchError(f"a callback is {wrong}; allowed: objects of a class derived from workbench.Callback")
    for name in dir(type(callback)):
        if name.startswith("on_") and name not in METHODS and callable(getattr(type(callback), name)):
            raise unknown("method", name, METHODS, f"the callback {type(callback).__name__}, which is never called")
