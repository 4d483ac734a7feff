"""How far the demo is: one bar for everything with the time left, and a line for every job that is running."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from pipelines.demo.plan import DemoJob

WINDOW = 60.0
PRIOR = 20.0


class Pace:
    """Work done -> seconds left, by the pace of the last minute.

    At first the pace is that of quiet cores (`at_once` units of work a second), and for PRIOR seconds' weight it stays.
    """

    def __init__(self, total: float, at_once: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.at_once, self.clock = total, at_once, clock
        self.seen = deque([(clock(), 0.0)])

    def left(self, done: float) -> float:
        """Seconds until all work is done, when so much is done now."""
        now = self.clock()
        self.seen.append((now, done))
        while self.seen[0][0] < now - WINDOW:
            self.seen.popleft()
        since, before = self.seen[0]
        pace = (self.at_once * PRIOR + done - before) / (PRIOR + now - since)
        return (self.total - done) / pace


class Board:
    """Shows the jobs: bars on a terminal; elsewhere a line when a job starts or is done."""

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
        """A job begins; `typed` is its command line."""
        self.console.print(f"[dim]$ {escape(typed)}[/]", highlight=False, soft_wrap=True)
        self.bars[job.name] = self.live.add_task(escape(job.name), total=None, note="")

    def follow(self, job: DemoJob, step: int, steps: int) -> None:
        """A running job is at a step of so many; 0 of 0 where nothing is known."""
        self.shares[job.name] = job.weight * (step / steps if steps else 0.0)
        if steps:
            self.live.update(self.bars[job.name], completed=step, total=steps, note=f"step {step}/{steps}")
        self._update()

    def end(self, job: DemoJob, seconds: float) -> None:
        """A job is done."""
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
