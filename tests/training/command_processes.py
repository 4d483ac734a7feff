"""`workbench` commands in processes of their own."""

from __future__ import annotations

import faulthandler
import logging
import multiprocessing
import os
import sys
import time
from pathlib import Path

from tests.fork_server import SERVER
from workbench.cli.app import main


class Forked:
    """A `workbench` command in a process forked from one that has imported everything and run nothing.

    Starting Python anew would take most of the time; a fork of the tests' own process has what other tests left in it,
    such as torch's refusal to differentiate in a fork of a process whose own threads have differentiated.
    """

    def __init__(self, arguments: list[str], environment: dict[str, str], output: Path) -> None:
        self.output = output
        self.process = SERVER.Process(target=_command, args=(arguments, environment, output))
        self.process.start()

    @property
    def running(self) -> bool:
        return self.process.is_alive()

    def signal(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def wait(self, seconds: float = 600) -> tuple[int, str]:
        """The exit code and what it printed; a process that takes longer is killed."""
        deadline = time.monotonic() + seconds
        while self.running and time.monotonic() < deadline:  # not join: it waits for a killed process's children
            time.sleep(0.02)
        if self.running:
            self.process.kill()
            self.process.join()
        assert self.process.exitcode is not None
        return self.process.exitcode, self.output.read_text()


def _command(arguments: list[str], environment: dict[str, str], output: Path) -> None:
    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    for handler in list(logging.getLogger().handlers):
        logging.getLogger().removeHandler(handler)
    faulthandler.disable()  # pytest's, which writes to pytest's terminal
    multiprocessing.set_start_method("fork", force=True)  # as where this process is the first
    os.environ.update(environment)
    os.chdir(environment.get("PWD", "."))
    sys.argv = ["workbench", *arguments]
    main()
