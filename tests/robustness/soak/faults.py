"""Faults at a chosen operation on files: a process that opens, renames or removes its n-th file is killed right then.

The interpreter announces such operations to audit hooks, before it does them. So the moment is the same each time the
trial is repeated, and every window between two operations is hit, however short it is.

    python -m tests.robustness.soak.faults FAULT-AS-JSON pretrain tiny-text ...   runs `workbench` with the fault
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import mmap
import os
import runpy
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

OPERATIONS = {"open": 0, "os.rename": 1, "os.mkdir": 0, "os.rmdir": 0, "os.remove": 0, "os.truncate": 0, "os.link": 1}
"""Events that change files, and which of their arguments is the path that is changed."""


@dataclass(frozen=True)
class Fault:
    """At the `at`-th operation under `folder`: wait `delay` seconds of continuing, then get `signal`.

    Args:
        begin: operations count from the first one on whose path holds this.
        after: the operation is done first, where it opens a file (which then is empty if it is a new one).
        group: the signal goes to the whole process group.
        again: seconds to a second signal; negative: none.
        counter: file of 8 bytes that gets the number of operations counted.
    """

    folder: str
    at: int
    signal: int = signal.SIGKILL
    delay: float = 0.0
    begin: str = ""
    after: bool = False
    group: bool = False
    again: float = -1.0
    counter: str = ""

    def arm(self) -> None:
        """Hook into this process; processes that it forks are left alone."""
        sys.addaudithook(_Hook(self, os.getpid()))

    def argument(self) -> str:
        """For the command line above."""
        return json.dumps(asdict(self))


class _Hook:
    def __init__(self, fault: Fault, process: int) -> None:
        self.fault, self.process = fault, process
        self.begun, self.busy = not fault.begin, False
        self.counted = _counter(fault.counter)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in OPERATIONS or self.busy or os.getpid() != self.process:
            return
        path = _changed(event, arguments, self.fault.folder)
        if not path:
            return
        self.begun = self.begun or self.fault.begin in path
        if not self.begun:
            return
        self.counted.value += 1
        if self.counted.value == self.fault.at:
            self.busy = True
            if self.fault.after and event == "open":
                os.close(os.open(path, arguments[2]))
            _strike(self.fault)
            self.busy = False


def _changed(event: str, arguments: tuple[Any, ...], folder: str) -> str:
    """The path under the folder that an operation is about to change; "" for all else."""
    path = arguments[OPERATIONS[event]]
    if not isinstance(path, str | bytes | os.PathLike):
        return ""
    if event == "open" and not (
        isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    ):
        return ""
    name = os.fsdecode(path)
    within_open_folder = (
        event in ("os.remove", "os.rmdir") and not os.path.isabs(name) and arguments[-1] not in (-1, None)
    )
    return name if within_open_folder or os.path.abspath(name).startswith(folder) else ""


def _strike(fault: Fault) -> None:
    send: Callable[[int], None] = (lambda n: os.killpg(0, n)) if fault.group else (lambda n: os.kill(os.getpid(), n))
    if fault.delay and fault.signal == signal.SIGKILL:
        signal.setitimer(signal.ITIMER_REAL, fault.delay)  # nobody handles SIGALRM: it ends the process as SIGKILL does
        return
    send(fault.signal)
    if fault.again >= 0:
        time.sleep(fault.again)
        send(fault.signal)


def _counter(path: str) -> ctypes.c_int64:
    if not path:
        return ctypes.c_int64()
    with open(path, "r+b") as file:
        return ctypes.c_int64.from_buffer(mmap.mmap(file.fileno(), 8))


def make_counter(path: Path) -> Callable[[], int]:
    """A file for `Fault.counter`; what is returned reads it."""
    path.write_bytes(bytes(8))
    return lambda: int.from_bytes(path.read_bytes(), sys.byteorder)


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR2, all_threads=True)
    Fault(**json.loads(sys.argv[1])).arm()
    sys.argv[1:] = sys.argv[2:]
    runpy.run_module("workbench", run_name="__main__", alter_sys=True)
