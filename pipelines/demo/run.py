"""The demo from raw files to a report: the commands that a user would type, one after another.

Every command is printed before it runs. All of them go on where they stopped, so an interrupted demo is started again
with the same command.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from pipelines.demo.easy_vqa import write_easy_vqa
from pipelines.demo.scene_files import write_scenes
from pipelines.demo.stages import Stage, stages
from pipelines.demo.summary import show_summary, write_summary
from pipelines.demo.together import run_together
from pipelines.demo.world_files import write_world
from workbench.cli import app
from workbench.errors import WorkbenchError

RAW: dict[str, Callable[[Path], object]] = {"world": write_world, "scenes": write_scenes, "easy_vqa": write_easy_vqa}


@dataclass
class Timing:
    """How long a stage took, in seconds."""

    stage: str
    seconds: float


def run_demo(folder: Path, console: Console) -> Path:
    """Prepare, pretrain, evaluate and report below `folder`; returns the summary's file.

    Raises:
        WorkbenchError: a command ended with an error.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _inside(folder):
        timings = [_raw(console)]
        timings += [_stage(stage, console) for stage in stages()]
        write_summary(Path("summary.json"), {t.stage: t.seconds for t in timings})
        run_command(["report", *_runs(), "--output", "report.html", "--title", "Demo"])
        show_summary(Path("summary.json"), console)
    return folder / "summary.json"


def _raw(console: Console) -> Timing:
    started = time.perf_counter()
    for name, write in RAW.items():
        if not (Path("raw") / name).is_dir():
            console.print(f"writing raw/{name}", style="dim")
            write(Path("raw") / name)
    return Timing("raw files", time.perf_counter() - started)


def _stage(stage: Stage, console: Console) -> Timing:
    console.rule(f"[bold]{escape(stage.name)}")
    started = time.perf_counter()
    for command in stage.commands:
        console.print(f"[bold]$[/] workbench {escape(shlex.join(command))}", highlight=False, soft_wrap=True)
        if not stage.together:
            run_command(command)
    if stage.together:
        run_together(stage.commands, console, at_once=os.cpu_count() or 1, logs=Path("logs"))
    return Timing(stage.name, time.perf_counter() - started)


def run_command(command: list[str]) -> None:
    """A command in this process.

    Raises:
        WorkbenchError: it ended with another code than 0.
    """
    try:
        app.run(command, "workbench")
    except SystemExit as end:
        if end.code not in (0, None):
            raise WorkbenchError(f"workbench {shlex.join(command)} ended with code {end.code}") from end


def _runs() -> list[str]:
    return sorted(str(path.parent) for path in Path("runs").glob("*/recipe.yaml"))


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
