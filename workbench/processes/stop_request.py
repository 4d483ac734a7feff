"""Ctrl-C, SIGTERM, SIGHUP, SIGUSR1: finish the step, save, say how to go on. A second one quits at once.

SIGHUP comes when a terminal closes, SIGUSR1 from schedulers shortly before they take the machine away.
"""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from workbench.processes.ending import interrupt

logger = logging.getLogger(__name__)

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
