"""Jobs side by side, one core each: small models gain little from a second one."""

from __future__ import annotations

import contextlib
import re
import shlex
import time
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil
from rich.console import Console

from pipelines.demo.plan import WRITE, DemoJob
from pipelines.demo.processes import Processes
from pipelines.demo.progress import Board
from workbench.core.errors import WorkbenchError
from workbench.core.processes.signals import StopRequest
from workbench.runs.metrics_file import read_metrics
from workbench.runs.names import RECIPE, is_run

TAIL = 1500
POLL = 0.2
SAVING = 60.0


class DemoInterrupted(SystemExit):
    """The demo was asked to stop, and all jobs have ended; the exit code is 128 + the signal's number."""


@dataclass
class Running:
    """A job as a process, and the file with what it prints."""

    job: DemoJob
    process: BaseProcess
    log: Path
    started: float = field(default_factory=time.perf_counter)
    core_seconds: float = 0.0

    def measure(self) -> None:
        """Take down the processor time it has had, while it can be asked."""
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(self.process.pid).cpu_times()
            self.core_seconds = times.user + times.system


def run_together(jobs: list[DemoJob], console: Console, *, at_once: int, threads: int, logs: Path) -> dict[str, float]:
    """Run jobs, `at_once` at a time, each as soon as what it reads is there, else in the order given.

    Returns how many seconds of processor time the jobs of each stage took.

    Raises:
        WorkbenchError: one failed; says which and shows the end of its log. The others are ended.
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
    """The first waiting job all of whose inputs are there and whose output no other is writing."""
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
    """Whether a job is done; the board follows the steps of the run it trains."""
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
    """Tell the jobs to end, wait until they have saved, and kill those that do not come to an end."""
    for each in running:
        each.process.terminate()
    for each in running:
        each.process.join(SAVING)
        if each.process.exitcode is None:
            each.process.kill()
            each.process.join()


def _steps(run: Path) -> tuple[int, int]:
    """The last logged step of a run and its number of steps; (0, 0) while there is neither."""
    logged = read_metrics(run)
    if not is_run(run) or not logged:
        return 0, 0
    total = re.search(r"max_steps: (\d+)", (run / RECIPE).read_text())
    return logged[-1]["step"], int(total.group(1)) if total else 0
