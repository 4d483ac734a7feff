"""`workbench` commands in processes of their own: forked from this warmed-up one, or a new interpreter."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from tests.robustness.soak.faults import Fault

ROOT = Path(__file__).resolve().parents[3]
MODULES = (
    "pipelines.commands.app",
    "workbench.cli.training",
    "workbench.training.pretrain",
    "workbench.training.verify_resume",
    "workbench.cli.report",
    "workbench.cli.evaluation",
    "workbench.cli.corpora",
    "kg.sequences.transforms.sentence_tree",
    "kg.vectors.vectors",
    "kg.linking.linker",
    "vision.sequences.image_processors.patches",
    "vision.models.embeddings.patches",
    "vision.objectives.itm",
    "torch.utils.tensorboard",
    "torch._dynamo",
    "typer.rich_utils",
)
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200", "WORKBENCH_LOG": "WARNING"}
STACKS = signal.SIGUSR2
LIMIT = 300.0
"""Seconds that no command takes, however busy the machine: what still runs then hangs."""


@dataclass(frozen=True)
class Ended:
    """How a command ended (a negative code is the signal that killed it), what it said, and whether it had to be."""

    code: int
    said: str
    hung: bool = False

    def __str__(self) -> str:
        how = "hung and was killed" if self.hung else f"ended with code {self.code}"
        said = self.said if len(self.said) < 4000 else f"{self.said[:1500]}\n[...]\n{self.said[-2500:]}"
        return f"{how}, saying:\n{said}"


def warm_up() -> None:
    """Import what commands import, so that a forked one starts at once."""
    sys.path.insert(0, str(ROOT))  # commands run in other folders: it is this checkout that they run
    for name in MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a child would touch, and so copy, all of this process's memory


class Command:
    """A running command, the leader of its own session; what it prints goes to `log`."""

    def __init__(self, pid: int, poll: Callable[[], int | None], log: Path) -> None:
        self.pid, self.log = pid, log
        self._poll = poll

    @property
    def running(self) -> bool:
        return self._poll() is None

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def children(self) -> list[psutil.Process]:
        """Its children that have not ended."""
        with contextlib.suppress(psutil.Error):
            return [p for p in psutil.Process(self.pid).children() if p.status() != psutil.STATUS_ZOMBIE]
        return []

    def wait_for(self, condition: Callable[[], object], seconds: float = LIMIT) -> bool:
        """Wait until something holds; false where it ended, or took too long, before."""
        deadline = time.monotonic() + seconds
        while not condition():
            if not self.running or time.monotonic() > deadline:
                return False
            time.sleep(0.003)
        return True

    def wait(self, seconds: float = LIMIT) -> Ended:
        """How it ended; one that takes longer is killed with all its children."""
        deadline = time.monotonic() + seconds
        while self.running and time.monotonic() < deadline:
            time.sleep(0.003)
        hung = self.running
        if hung:
            show_stacks({self.pid})
        while self.running:
            kill_sessions({self.pid})
            time.sleep(0.003)
        code = self._poll()
        assert code is not None
        return Ended(code, self.log.read_text(errors="replace"), hung)


def start(
    arguments: list[str],
    folder: Path,
    log: Path,
    *,
    fault: Fault | None = None,
    fresh: bool = False,
    environment: dict[str, str] | None = None,
) -> Command:
    """`workbench ARGUMENTS` in a folder; `fresh` starts a new interpreter, which takes seconds."""
    if fresh:
        program = ["tests.robustness.soak.faults", fault.argument()] if fault else ["workbench"]
        return spawn([sys.executable, "-m", *program, *arguments], folder, log, environment)

    def run() -> None:
        from workbench.cli.app import main

        os.environ.update(environment or {})
        sys.argv = ["workbench", *arguments]
        sys.path.insert(0, "")
        if fault is not None:
            fault.arm()
        main()

    return fork(run, folder, log)


def fork(function: Callable[[], object], folder: Path, log: Path) -> Command:
    """A function in a process forked from this one."""
    process = multiprocessing.get_context("fork").Process(target=_child, args=(function, folder, log))
    process.start()
    assert process.pid is not None
    command = Command(process.pid, lambda: process.exitcode, log)
    _started.append(command)
    return command


def spawn(arguments: list[str], folder: Path, log: Path, environment: dict[str, str] | None = None) -> Command:
    """Any program."""
    with log.open("w") as output:
        process = subprocess.Popen(
            arguments,
            cwd=folder,
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT), **(environment or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    command = Command(process.pid, process.poll, log)
    _started.append(command)
    return command


def run(arguments: list[str], folder: Path, log: Path, **more: object) -> Ended:
    """Start a command and wait for its end."""
    return start(arguments, folder, log, **more).wait()  # type: ignore[arg-type]


def _child(function: Callable[[], object], folder: Path, log: Path) -> None:
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    faulthandler.register(STACKS, all_threads=True)
    os.environ.update(ENVIRONMENT)
    torch.set_num_threads(1)  # the threads of this process's pool are not there in a fork of it
    os.chdir(folder)
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    logging.getLogger().handlers.clear()
    function()


_started: list[Command] = []


def living(leaders: set[int]) -> list[psutil.Process]:
    """The processes of these sessions that have not ended, their leaders too."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) in leaders and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def kill_sessions(leaders: set[int]) -> None:
    """Kill all processes of these sessions."""
    for process in living(leaders):
        with contextlib.suppress(psutil.Error):
            process.kill()


def show_stacks(leaders: set[int]) -> None:
    """Have the processes of these sessions write where they are into their logs (`faulthandler`)."""
    for process in living(leaders):
        with contextlib.suppress(psutil.Error):
            process.send_signal(STACKS)
    time.sleep(0.5)


def orphans(seconds: float = 120.0) -> list[int]:
    """What commands that have ended left running, after some seconds to notice."""
    leaders = {command.pid for command in _started if not command.running}
    deadline = time.monotonic() + seconds
    while (left := living(leaders)) and time.monotonic() < deadline:
        time.sleep(0.1)
    if left:
        show_stacks(leaders)
    return [process.pid for process in left]


def end_all() -> None:
    """Kill what was started and still runs."""
    kill_sessions({command.pid for command in _started})
    for command in _started:
        while command.running:
            time.sleep(0.003)
    _started.clear()
