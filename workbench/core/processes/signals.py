"""Commands that are told to end by a signal end as by Ctrl-C: they clear what is half-written, and say so.

Ctrl-C, SIGTERM, SIGHUP, SIGUSR1: finish the step, save, say how to continue. A second one quits at once.

SIGHUP comes when a terminal closes, SIGUSR1 from schedulers shortly before they take the machine away.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

logger = logging.getLogger(__name__)


ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""What schedulers and closing terminals send; Ctrl-C is `Interrupted`."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C: whatever was at work then is not the cause, as it is for a KeyboardInterrupt that it raises itself."""


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
    """Within, the first signal of `ENDING` raises `Ended` in the main thread; a second one kills at once. Ctrl-C raises
    `Interrupted`, where Python's own handler would have taken it.

    Outside the main thread, where Python allows no handlers, nothing changes. A SIGHUP that the process was told to
    ignore (nohup) stays ignored.

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
    """While entered, the first signal of `WATCHED` is only noted in `signal`; the second kills, or is Ctrl-C again.

    Outside the main thread (where Python allows no handlers) it notes nothing. A SIGHUP that the process was told to
    ignore (nohup) stays ignored.
    """

    def __init__(self) -> None:
        self.signal: int = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            told_to_ignore = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            watched = [number for number in WATCHED if not (number == signal.SIGHUP and told_to_ignore)]
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
        logger.warning("%s: finishing this step, then saving; once more to quit at once", signal.Signals(number).name)
