"""What a person sees while a run trains: a bar on a terminal, plain lines elsewhere, log.txt always."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from workbench.processes.distributed import World
from workbench.runs.metrics import Record
from workbench.runs.names import LOG
from workbench.terminal import PlainFormatter

logger = logging.getLogger(__name__)
PLAIN = "%(asctime)s %(message)s"


@contextmanager
def run_logging(run: Path, world: World, console: Console) -> Iterator[None]:
    """Send the workbench's log to the console and, on the main rank, to log.txt; other ranks tell warnings only."""
    top = logging.getLogger("workbench")
    before = top.level, top.propagate
    shown: logging.Handler
    if console.is_terminal:
        shown = RichHandler(console=console, show_path=False, show_level=False)
    else:
        shown = logging.StreamHandler(sys.stderr)
        shown.setFormatter(PlainFormatter(PLAIN if world.is_main else f"rank {world.rank}: %(message)s"))
    shown.setLevel(logging.INFO if world.is_main else logging.WARNING)
    handlers: list[logging.Handler] = [shown]
    if world.is_main:
        file = _LogFile(run / LOG)
        file.setFormatter(PlainFormatter(PLAIN))
        handlers.append(file)
    for handler in handlers:
        top.addHandler(handler)
    top.setLevel(logging.INFO)
    top.propagate = False
    try:
        yield
    finally:
        for handler in handlers:
            top.removeHandler(handler)
            handler.close()
        top.level, top.propagate = before


class _LogFile(logging.FileHandler):
    """log.txt. On a full disk its lines are lost; the metrics and checkpoints that do not fit either end the run."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    def close(self) -> None:
        with suppress(OSError):
            super().close()


class Display:
    """Shows steps as they finish. A bar where the main rank has a terminal; otherwise a line per record."""

    def __init__(self, console: Console, world: World, *, start: int, total: int) -> None:
        self.total = total
        self.bar: Progress | None = None
        self.task: TaskID | None = None
        if world.is_main and console.is_terminal:
            self.bar = Progress(
                TextColumn("step {task.completed}/{task.total}"),
                BarColumn(),
                TextColumn("{task.description}"),
                TimeElapsedColumn(),
                TextColumn("ETA"),
                TimeRemainingColumn(),
                console=console,
            )
            self.task = self.bar.add_task("", total=total, completed=start)

    def __enter__(self) -> Display:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def step(self) -> None:
        if self.bar is not None and self.task is not None:
            self.bar.advance(self.task)

    def record(self, record: Record) -> None:
        """Show a line of metrics."""
        text = _line(record)
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, description=text)
            logger.debug("step %d: %s", record["step"], text)
            return
        speed = record.get("seconds_per_step", 0.0)
        left = f"  ETA {_duration((self.total - record['step']) * speed)}" if speed else ""
        logger.info("step %d/%d  %s%s", record["step"], self.total, text, left)


def _line(record: Record) -> str:
    shown = [f"{name} {value:.4f}" for name, value in record.items() if name.endswith("/loss")]
    if "tokens_per_second" in record:
        shown.append(f"{record['tokens_per_second']:,.0f} tokens/s")
        shown.append(f"{record['samples_per_second']:,.1f} samples/s")
    return "  ".join(shown)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
