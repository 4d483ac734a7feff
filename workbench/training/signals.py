"""Ctrl-C and SIGTERM: finish the step, save, say how to go on. A second one quits at once."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

logger = logging.getLogger(__name__)

WATCHED = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """While entered, the first SIGINT or SIGTERM is only noted in `signal`; the second acts as it did before.

    Outside the main thread (where Python allows no handlers) it notes nothing.
    """

    def __init__(self) -> None:
        self.signal: int = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in WATCHED}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        self._restore()
        logger.warning("%s: finishing this step, then saving; once more to quit at once", signal.Signals(number).name)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}


def ignore_in_worker(worker: int) -> None:
    """For loader workers: the main process decides when to stop, although a terminal signals the whole group."""
    for number in WATCHED:
        signal.signal(number, signal.SIG_IGN)
