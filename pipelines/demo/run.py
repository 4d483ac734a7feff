"""The demo from raw files to a report: the commands that a user would type, each as soon as its inputs exist.

Each of them resumes where it stopped. To resume an interrupted demo, start it again with the same command.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from pipelines.demo.figure import FIGURE, example_fact, facts_figure
from pipelines.demo.plan import DemoJob, plan
from pipelines.demo.story import chapters, show
from pipelines.demo.summary import write_summary
from pipelines.demo.together import run_together
from workbench.cli.app import app
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import write_text
from workbench.core.processes.children import cores
from workbench.runs.names import runs_below

MOST_AT_ONCE = 8


def run_demo(folder: Path, console: Console) -> Path:
    """Prepare, pretrain, evaluate and report below `folder`; returns the path of the summary.

    Raises:
        WorkbenchError: a command ended with an error.
        Interrupted: it was asked to stop.
    """
    started = time.perf_counter()
    seconds = run_jobs(folder, plan(), console)
    with _inside(folder):
        summary = write_summary(Path("summary.json"), seconds, time.perf_counter() - started)
        write_text(Path(FIGURE), facts_figure(summary, example_fact()))
        story = chapters(summary, FIGURE)
        write_text(Path("story.json"), json.dumps([dataclasses.asdict(c) for c in story], ensure_ascii=False, indent=1))
        runs = [str(run) for run in runs_below(Path("runs"))]
        _command("report", *runs, "--output", "report.html", "--title", "Demo", "--opening", "story.json")
        show(story, console)
    return folder / "summary.json"


def run_jobs(folder: Path, jobs: list[DemoJob], console: Console) -> dict[str, float]:
    """Run jobs below `folder`, as many at once as there are cores; returns processor seconds by stage.

    Raises:
        WorkbenchError: a command ended with an error.
        Interrupted: it was asked to stop.
    """
    folder.mkdir(parents=True, exist_ok=True)
    at_once = min(cores(), MOST_AT_ONCE)
    with _inside(folder):
        return run_together(jobs, console, at_once=at_once, threads=cores() // at_once, logs=Path("logs"))


def _command(*words: str) -> None:
    """Run a command of `workbench` in this process."""
    try:
        app.run(list(words), "workbench")
    except SystemExit as end:
        if end.code not in (0, None):
            raise WorkbenchError(f"workbench {shlex.join(words)} ended with code {end.code}") from end


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
