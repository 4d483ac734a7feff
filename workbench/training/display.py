"""The display of a run while it trains: a bar on a terminal, one output in a notebook, else lines; log.txt always."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from workbench.core.local_copies import with_urls
from workbench.core.processes.distributed import World
from workbench.core.terminal import PlainFormatter
from workbench.runs.metrics_file import Record
from workbench.runs.names import LOG
from workbench.training.callbacks import Callback
from workbench.training.failures import Spared
from workbench.training.notebook_log import NUMBERS, TOTAL, NotebookLog
from workbench.training.rank_statistics import slowest

logger = logging.getLogger(__name__)
PLAIN = "%(asctime)s %(message)s"
DRAWN = "drawn"
"""The attribute of a log record that a terminal shows in another form."""
RATES = {
    "tokens_per_second": "{:,.0f} tokens/s",
    "samples_per_second": "{:,.1f} samples/s",
    "model_flops_utilisation": "MFU {:.1%}",
    "memory_gib": "{:.1f} GiB",
    "data_wait_share": "data wait {:.0%}",
}
"""The formats of a record's rates in the line of a step (`workbench.training.metrics`)."""


@contextmanager
def run_logging(run: Path, world: World, console: Console) -> Iterator[Callable[[], None]]:
    """Send the workbench's log to the console and, on the main rank, to log.txt; other ranks log warnings only.

    All ranks call the yielded function once the run is planned. Every rank makes the same plan and would log the same
    warnings. Until then warnings of other ranks are held back; afterwards those are logged that the main rank has not
    logged. Nothing is written until then either: log.txt begins with what was logged so far.
    """
    top = logging.getLogger("workbench")
    before = top.level, top.propagate
    shown: logging.Handler
    if console.is_terminal:
        shown = _Shown(console=console, show_path=False, show_level=False)
        shown.setFormatter(PlainFormatter("%(message)s"))
        shown.addFilter(lambda record: not getattr(record, DRAWN, False))
    elif console.is_jupyter and world.is_main:
        shown = NotebookLog()
        shown.setFormatter(PlainFormatter("%(message)s"))
    else:
        shown = logging.StreamHandler(sys.stderr)
        name = world.name.replace("%", "%%")
        shown.setFormatter(PlainFormatter(PLAIN if world.is_main else f"%(asctime)s {name}: %(message)s"))
    shown.setLevel(logging.INFO if world.is_main else logging.WARNING)
    held = _Held(None if world.is_main else shown)
    file = _LogFile(run / LOG)
    handlers: list[logging.Handler] = [shown, held, file] if world.is_main else [held]
    for handler in handlers:
        top.addHandler(handler)
    top.setLevel(logging.INFO)
    top.propagate = False
    try:
        yield partial(_meet, held, file, world)
    finally:
        held.let_go()
        for handler in handlers:
            top.removeHandler(handler)
            handler.close()
        top.level, top.propagate = before


class _Held(logging.Handler):
    """Holds warnings back until they are released. They go to `shown` then, as do all later ones."""

    def __init__(self, shown: logging.Handler | None) -> None:
        super().__init__(logging.WARNING)
        self.shown = shown
        self.kept: list[logging.LogRecord] | None = []

    def emit(self, record: logging.LogRecord) -> None:
        if self.kept is not None:
            self.kept.append(record)
        elif self.shown is not None:
            self.shown.handle(record)

    def let_go(self) -> None:
        kept, self.kept = self.kept or [], None
        for record in kept:
            self.emit(record)


def _meet(held: _Held, file: _LogFile, world: World) -> None:
    """Have the main rank log the warnings that the ranks have held back, each message once."""
    file.begin()
    ranks = world.gather_on_main([record.getMessage() for record in held.kept or []])
    held.kept = None
    counters = set(ranks[0]) if ranks else set()
    for rank, messages in enumerate(ranks):
        for message in messages:
            if message not in counters:
                counters.add(message)
                logger.warning("rank %d: %s", rank, message)


class _Shown(RichHandler):
    """The log on a terminal. A line that cannot be shown is lost, as in other handlers."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except Exception:
            self.handleError(record)


class _LogFile(logging.FileHandler):
    """log.txt, once it is begun. On a full disk its lines are lost; metrics and checkpoints that do not fit either end
    the run."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, delay=True)
        self.setFormatter(PlainFormatter(PLAIN))
        self.waiting: list[logging.LogRecord] | None = []

    def begin(self) -> None:
        """Write the earlier log records, and all later ones as they come."""
        self.stream = self._open()
        waiting, self.waiting = self.waiting or [], None
        for record in waiting:
            self.emit(record)

    def emit(self, record: logging.LogRecord) -> None:
        if self.waiting is None:
            super().emit(record)
        else:
            self.waiting.append(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    def close(self) -> None:
        with suppress(OSError):
            super().close()


class Display(Callback):
    """Shows steps as they finish. A bar where the main rank has a terminal; otherwise a line per record.

    If the bar fails, lines replace it.

    Args:
        spared: catches failures that need not end a run.
    """

    def __init__(self, console: Console, world: World, spared: Spared, *, start: int, total: int) -> None:
        self.console, self.world, self.spared = console, world, spared
        self.start, self.total = start, total
        self.bar: Progress | None = None
        self.task: TaskID | None = None

    def __enter__(self) -> Display:
        if self.world.is_main and self.console.is_terminal:
            with self._shown():
                self.bar = Progress(
                    TextColumn("step {task.completed}/{task.total}"),
                    BarColumn(),
                    TextColumn("{task.description}"),
                    TimeElapsedColumn(),
                    TextColumn("ETA"),
                    TimeRemainingColumn(),
                    console=self.console,
                )
                self.task = self.bar.add_task("", total=self.total, completed=self.start)
                self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._shown():
            if self.bar is not None:
                self.bar.stop()

    def preamble(self, facts: Mapping[str, str]) -> None:
        """Show the facts about a run at its start: a table on a terminal, otherwise lines; log.txt has lines."""
        drawn = False
        if self.console.is_terminal:
            with self._shown():
                table = Table(box=None, show_header=False, pad_edge=False)
                for name, fact in facts.items():
                    table.add_row(Text(name, style="bold"), Text(with_urls(fact), overflow="fold"))
                self.console.print(table)
                drawn = True
        width = max(map(len, facts), default=0)
        for name, fact in facts.items():
            logger.info("%s  %s", name.ljust(width), fact, extra={DRAWN: drawn})

    def on_step(self, step: int, metrics: Record) -> None:
        if metrics:
            self.record(metrics)
        if self.bar is not None and self.task is not None:
            with self._shown():
                self.bar.advance(self.task)

    def on_evaluation(self, step: int, metrics: Record) -> None:
        self.record(metrics)

    def record(self, record: Record) -> None:
        """Show a line of metrics."""
        with self._shown():
            text = _line(record)
            if self.bar is not None and self.task is not None:
                self.bar.update(self.task, description=text)
                logger.debug("step %d: %s", record["step"], text)
                return
            speed = record.get("seconds_per_step", 0.0)
            left = f"  ETA {_duration((self.total - record['step']) * speed)}" if speed else ""
            numbers = {NUMBERS: record, TOTAL: self.total}
            logger.info("step %d/%d  %s%s", record["step"], self.total, text, left, extra=numbers)

    @contextmanager
    def _shown(self) -> Iterator[None]:
        """A block whose failure removes the bar for the rest of the run."""
        with self.spared("the display"):
            try:
                yield
            except Exception:
                bar, self.bar = self.bar, None
                if bar is not None:
                    with suppress(Exception):
                        bar.stop()
                raise


def _line(record: Record) -> str:
    shown = [f"{name} {value:.4f}" for name, value in record.items() if name.endswith("/loss")]
    for name, form in RATES.items():
        if name in record:
            shown.append(form.format(record[name]))
    shown += filter(None, [slowest(record)])
    return "  ".join(shown)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
