"""How a process ended that was not asked to, in words."""

from __future__ import annotations

import signal
from multiprocessing.process import BaseProcess


def how_it_ended(process: BaseProcess, what: str) -> str:
    """A process that has ended, and the signal that killed it or the exit code it gave.

    Args:
        what: what it was for, as in 'a loader worker'.
    """
    code = process.exitcode or 0
    by = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"{what} (process {process.pid}) {by}"
