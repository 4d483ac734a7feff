"""Signals that end a command: SIGTERM, SIGHUP, SIGUSR1 and Ctrl-C. A command cleans up its drafts before it ends.

A training run finishes the step, saves a checkpoint, and says how to continue; a second signal ends it at once. SIGHUP
comes when a terminal closes, SIGUSR1 from schedulers shortly before they stop the job.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from workbench.core.processes.launch import started

logger = logging.getLogger(__name__)


ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""The signals of schedulers and closing terminals; Ctrl-C is `Interrupted`."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C from the user. It names no component, unlike a KeyboardInterrupt that a component raises itself."""


def interrupt(number: int, frame: FrameType | None) -> None:
    """The handler of Ctrl-C, in place of Python's own.

    Raises:
        Interrupted: always.
    """
    raise Interrupted


class Ended(SystemExit):
    """A signal asked the process to end; the exit code is 128 + its number."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.signal = signal.Signals(number)


@contextmanager
def ending() -> Iterator[None]:
    """A block in which the first signal of `ENDING` raises `Ended` in the main thread; a second one kills the process.
    Ctrl-C raises `Interrupted` if Python's own handler was installed.

    Outside the main thread, where Python allows no handlers, nothing changes. An ignored SIGHUP (nohup) stays ignored.

    Raises:
        Ended, Interrupted: a signal came.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING}

    def end(number: int, frame: FrameType | None) -> None:
        for each in ENDING:
            signal.signal(each, signal.SIG_DFL)
        raise Ended(number)

    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, end)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


class StopRequest:
    """While entered, the first signal of `WATCHED` is only stored in `signal`. A second one kills the process, or
    raises Ctrl-C. The message of one of several ranks promises no checkpoint: the signal may come since a rank is lost.

    Outside the main thread, where Python allows no handlers, nothing is stored. An ignored SIGHUP (nohup) stays
    ignored.
    """

    unsaved = ""
    """Why the run of this process ends without a checkpoint, whatever signals come; "" while it does not."""

    @classmethod
    def no_more_saves(cls, reason: str) -> None:
        """Note that the run of this process ends with an error."""
        cls.unsaved = reason

    def __init__(self) -> None:
        self.signal: int = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        StopRequest.unsaved = ""
        if threading.current_thread() is threading.main_thread():
            is_ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            watched = [number for number in WATCHED if not (number == signal.SIGHUP and is_ignored)]
            self._before = {number: signal.signal(number, self._note) for number in watched}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        for each in self._before:
            signal.signal(each, interrupt if each == signal.SIGINT else signal.SIG_DFL)
        if self.unsaved:
            does = f"the run ends without a new checkpoint, since {self.unsaved}"
        elif started(os.environ) > 1:
            does = "finishing this step and saving a checkpoint, if all ranks are still there"
        else:
            does = "finishing this step and saving a checkpoint"
        logger.warning("%s: %s; send it again to stop at once", signal.Signals(number).name, does)
