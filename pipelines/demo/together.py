"""Commands side by side, one core each, with a bar for every run that they train."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from workbench.errors import WorkbenchError

TAIL = 1500
POLL = 0.3


@dataclass
class Job:
    """One command as a process; what it prints goes to a log file."""

    name: str
    command: list[str]
    output: Path | None
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    bar: TaskID


def run_together(commands: list[list[str]], console: Console, *, at_once: int, logs: Path) -> None:
    """Run `workbench` commands, `at_once` at a time, in the order given; returns when all are done.

    A command that reads what another one of them writes (`--output`) waits for it, and later ones go before it.

    Raises:
        WorkbenchError: one failed; says which and shows the end of its log. The others are ended.
    """
    logs.mkdir(parents=True, exist_ok=True)
    waiting, running = list(commands), list[Job]()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        try:
            while waiting or running:
                while len(running) < at_once and (ready := _ready(waiting, running)) is not None:
                    running.append(_start(waiting.pop(ready), progress, logs, at_once))
                assert running, "the commands wait for each other"
                time.sleep(POLL)
                for job in list(running):
                    if _look(job, progress):
                        running.remove(job)
        finally:
            for job in running:
                job.process.terminate()
            for job in running:
                job.process.wait()
                job.log.close()


def _ready(waiting: list[list[str]], running: list[Job]) -> int | None:
    """The first waiting command all of whose inputs are there."""
    unfinished = {str(output) for output in map(_output, waiting) if output} | {str(job.output) for job in running}
    for number, command in enumerate(waiting):
        if not (unfinished - {str(_output(command))}) & set(command):
            return number
    return None


def _output(command: list[str]) -> Path | None:
    return next((Path(b) for a, b in pairwise(command) if a in ("-o", "--output")), None)


def _start(command: list[str], progress: Progress, logs: Path, at_once: int) -> Job:
    output = _output(command)
    name = " ".join(command[:2] if output is None else [command[0], output.name])
    threads = max(1, (os.cpu_count() or 1) // at_once)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
    title = " ".join(command) if output is None else name
    log = open(logs / f"{re.sub(r'[^A-Za-z0-9]+', '-', title)[:120]}.log", "wb")  # noqa: SIM115
    process = subprocess.Popen(
        [sys.executable, "-m", "workbench", *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
    )
    return Job(name, command, output, process, log, progress.add_task(name, total=None, note=""))


def _look(job: Job, progress: Progress) -> bool:
    """Whether a job is done; its bar follows the steps of the run it trains."""
    code = job.process.poll()
    step, total = _steps(job.output)
    if total:
        progress.update(job.bar, completed=step, total=total, note=f"step {step}/{total}")
    if code is None:
        return False
    job.log.close()
    if code:
        end = Path(job.log.name).read_text(errors="replace")[-TAIL:].strip()
        raise WorkbenchError(f"workbench {' '.join(job.command)} ended with code {code}:\n{end}")
    progress.update(job.bar, completed=1, total=1, note="done")
    return True


def _steps(run: Path | None) -> tuple[int, int]:
    """The last logged step of a run and its number of steps; (0, 0) while there is neither."""
    if run is None or not (run / "recipe.yaml").is_file() or not (run / "metrics.jsonl").is_file():
        return 0, 0
    total = re.search(r"max_steps: (\d+)", (run / "recipe.yaml").read_text())
    lines = (run / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines[-3:] if line.endswith("}")]
    return max(steps, default=0), int(total.group(1)) if total else 0
