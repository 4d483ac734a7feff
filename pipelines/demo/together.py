"""Runs jobs in parallel, one core each: small models gain little from a second core.

A job is a process. Imports cost more than many of the jobs, so processes are forked from one that has imported the
modules: on Linux the fork server of `multiprocessing` imports once what nearly all jobs need; elsewhere each process
imports for itself. One bar shows the whole demo with the remaining time, and there is a line for every running job.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import shlex
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType

import psutil
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from pipelines.demo.plan import WRITE, DemoJob
from workbench.core.errors import WorkbenchError
from workbench.core.processes.signals import StopRequest
from workbench.runs.metrics_file import read_metrics
from workbench.runs.names import RECIPE, is_run

IMPORTED = (
    "workbench.cli.app",
    "workbench.cli.training",
    "workbench.training.pretrain",
    "workbench.training.verify_resume",
    "workbench.cli.evaluation",
    "workbench.evaluation.scoring.evaluation",
    "workbench.evaluation.finetuning.finetuning",
    "kg.evaluation.tasks.facts",
    "kg.evaluation.tasks.entity_typing",
    "kg.sequences.transforms.sentence_tree",
    "vision.evaluation.tasks.vqa",
    "vision.evaluation.tasks.retrieval",
    "pipelines.commands.corpora.text",
    "pipelines.commands.corpora.image_text",
    "pipelines.stages.region_features",
    "vision.features.region_sources",
    "torch.utils.tensorboard",
    "torch._dynamo",
)


class Processes:
    """Starts jobs as processes, each with its log file and a number of threads."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.kind: type[BaseProcess] = multiprocessing.get_context("spawn").Process
        if sys.platform == "linux":
            server = multiprocessing.get_context("forkserver")
            server.set_forkserver_preload(list(IMPORTED))
            self.kind = server.Process

    def start(self, command: Sequence[str], log: Path) -> BaseProcess:
        """A process that runs a command in the current folder; its output goes to `log`."""
        # the raw files need none of the imports, so they are written meanwhile
        kind = multiprocessing.get_context("spawn").Process if command[0] == WRITE else self.kind
        process = kind(target=_work, args=(list(command), str(log), os.getcwd(), self.threads))
        process.start()
        return process


def _work(command: list[str], log: str, folder: str, threads: int) -> None:
    """The function of a process. It ends when the demo ends. It ignores Ctrl-C; the demo stops its jobs."""
    os.setpgid(0, 0)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with open(log, "ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(folder)
    if command[0] == WRITE:
        from pipelines.demo.raw import write_raw_split

        try:
            write_raw_split(command[1], Path("raw"))
        except WorkbenchError as error:
            sys.exit(f"error: {error}")
        return
    import torch

    from workbench.cli.app import main

    torch.set_num_threads(threads)
    sys.argv = ["workbench", *command]
    main()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


WINDOW = 60.0
PRIOR = 20.0


class Pace:
    """Work done -> seconds left, by the pace of the last minute.

    At first the pace is that of idle cores (`at_once` units of work a second); this prior has the weight of PRIOR
    seconds.
    """

    def __init__(self, total: float, at_once: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.at_once, self.clock = total, at_once, clock
        self.seen = deque([(clock(), 0.0)])

    def left(self, done: float) -> float:
        """Seconds until all work is done, given the work done now."""
        now = self.clock()
        self.seen.append((now, done))
        while self.seen[0][0] < now - WINDOW:
            self.seen.popleft()
        since, before = self.seen[0]
        pace = (self.at_once * PRIOR + done - before) / (PRIOR + now - since)
        return (self.total - done) / pace


class Board:
    """Shows the jobs: bars on a terminal; elsewhere a line when a job starts or ends."""

    def __init__(self, jobs: list[DemoJob], console: Console, at_once: int) -> None:
        self.console, self.count, self.finished = console, len(jobs), 0
        self.total, self.done = sum(job.weight for job in jobs), 0.0
        self.shares: dict[str, float] = {}
        self.pace = Pace(self.total, at_once)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
        )
        self.live = Progress(*columns, console=console, disable=not console.is_terminal)
        self.whole = self.live.add_task("[bold]demo", total=self.total, note="")
        self.bars: dict[str, TaskID] = {}

    def __enter__(self) -> Board:
        self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for bar in self.bars.values():
            self.live.remove_task(bar)
        self.live.stop()

    def start(self, job: DemoJob, typed: str) -> None:
        """Show that a job starts; `typed` is its command line."""
        self.console.print(f"[dim]$ {escape(typed)}[/]", highlight=False, soft_wrap=True)
        self.bars[job.name] = self.live.add_task(escape(job.name), total=None, note="")

    def follow(self, job: DemoJob, step: int, steps: int) -> None:
        """Show the step of a running job; 0 of 0 if unknown."""
        self.shares[job.name] = job.weight * (step / steps if steps else 0.0)
        if steps:
            self.live.update(self.bars[job.name], completed=step, total=steps, note=f"step {step}/{steps}")
        self._update()

    def end(self, job: DemoJob, seconds: float) -> None:
        """Show that a job is done."""
        self.shares.pop(job.name, None)
        self.done += job.weight
        self.finished += 1
        self.live.remove_task(self.bars.pop(job.name))
        note = self._update()
        if not self.console.is_terminal:
            self.console.print(f"{job.name}: {seconds:.1f} s; {note}", highlight=False, soft_wrap=True, markup=False)

    def _update(self) -> str:
        done = self.done + sum(self.shares.values())
        left = round(self.pace.left(done))
        note = f"{self.finished}/{self.count} jobs, about {left // 60}:{left % 60:02} left"
        self.live.update(self.whole, completed=done, note=note)
        return note


TAIL = 1500
POLL = 0.2
SAVING = 60.0


class DemoInterrupted(SystemExit):
    """The demo was interrupted, and all jobs have ended; the exit code is 128 + the signal's number."""


@dataclass
class Running:
    """A job as a process, and the file with its output."""

    job: DemoJob
    process: BaseProcess
    log: Path
    started: float = field(default_factory=time.perf_counter)
    core_seconds: float = 0.0

    def measure(self) -> None:
        """Store its processor time while the process still exists."""
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(self.process.pid).cpu_times()
            self.core_seconds = times.user + times.system


def run_together(jobs: list[DemoJob], console: Console, *, at_once: int, threads: int, logs: Path) -> dict[str, float]:
    """Run jobs, `at_once` at a time, each as soon as its inputs exist, else in the given order.

    Returns the seconds of processor time of the jobs of each stage.

    Raises:
        WorkbenchError: a job failed; the message names it and shows the end of its log. The others are ended.
        Interrupted: Ctrl-C or SIGTERM. The jobs were stopped; a training run saves first.
    """
    logs.mkdir(parents=True, exist_ok=True)
    waiting, running, seconds = list(jobs), list[Running](), dict.fromkeys((job.stage for job in jobs), 0.0)
    processes = Processes(threads)
    with StopRequest() as stop, Board(jobs, console, at_once) as board:
        try:
            while waiting or running:
                if stop.signal:
                    console.print("stopping the jobs; training runs save first")
                    raise DemoInterrupted(128 + stop.signal)
                while len(running) < at_once and (job := _ready(waiting, [r.job for r in running])) is not None:
                    waiting.remove(job)
                    board.start(job, typed(job))
                    log = logs / f"{re.sub(r'[^A-Za-z0-9]+', '-', job.name)}.log"
                    log.unlink(missing_ok=True)
                    running.append(Running(job, processes.start(job.command, log), log))
                assert running, "the jobs wait for each other"
                time.sleep(POLL)
                for each in list(running):
                    if _look(each, board):
                        running.remove(each)
                        seconds[each.job.stage] += each.core_seconds
        finally:
            _end(running)
    return seconds


def typed(job: DemoJob) -> str:
    """The job's command line."""
    program = "python -m pipelines.demo files" if job.command[0] == WRITE else "workbench"
    return f"{program} {shlex.join(job.command)}"


def _ready(waiting: list[DemoJob], running: list[DemoJob]) -> DemoJob | None:
    """The first waiting job whose inputs all exist and whose output no other job is writing."""
    unfinished = [job.output for job in [*waiting, *running]]
    written = {job.output for job in running}
    for job in waiting:
        inputs = (*job.needs, *job.command)
        others = [output for output in unfinished if output != job.output]
        if job.output not in written and not any(
            word == o or word.startswith(f"{o}/") for word in inputs for o in others
        ):
            return job
    return None


def _look(running: Running, board: Board) -> bool:
    """Whether a job is done; also shows the steps of the run that it trains."""
    code = running.process.exitcode
    if code is None:
        running.measure()
        board.follow(running.job, *_steps(Path(running.job.output)))
        return False
    if code:
        end = running.log.read_text(errors="replace")[-TAIL:].strip()
        raise WorkbenchError(f"{typed(running.job)} ended with code {code}:\n{end}")
    board.end(running.job, time.perf_counter() - running.started)
    return True


def _end(running: list[Running]) -> None:
    """Ask the jobs to end, wait until they have saved, and kill those that do not end."""
    for each in running:
        each.process.terminate()
    for each in running:
        each.process.join(SAVING)
        if each.process.exitcode is None:
            each.process.kill()
            each.process.join()


def _steps(run: Path) -> tuple[int, int]:
    """The last logged step of a run and its number of steps; (0, 0) if one of them is missing."""
    logged = read_metrics(run)
    if not is_run(run) or not logged:
        return 0, 0
    total = re.search(r"max_steps: (\d+)", (run / RECIPE).read_text())
    return logged[-1]["step"], int(total.group(1)) if total else 0
