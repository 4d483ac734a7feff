"""The reports of a preparation: its progress bar, its result, and the table of the result."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from workbench.core.live_output import ProgressBars
from workbench.core.terminal import Terminal
from workbench.corpora.manifest import Manifest
from workbench.corpora.shards.writer import NOT_FINITE

console = Terminal(stderr=True)
SHOWN = 60


class ProgressBar:
    """Counts samples and shards on a progress bar (on stderr)."""

    def __init__(self, title: str, console: Terminal = console) -> None:
        self.samples = self.dropped = self.shards = 0
        self.started = time.monotonic()
        self._bar = ProgressBars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            transient=False,
            console=console,
        )
        self._task = self._bar.add_task(title, total=None, state="starting")

    def __enter__(self) -> ProgressBar:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._bar.update(self._task, total=1, completed=1)
        self._bar.stop()

    def add(self, samples: int, dropped: int) -> None:
        """Count another finished shard."""
        self.samples, self.dropped, self.shards = self.samples + samples, self.dropped + dropped, self.shards + 1
        rate = self.samples / max(time.monotonic() - self.started, 1e-9)
        state = f"{self.samples:,} samples, {self.dropped:,} dropped, {self.shards:,} shards, {rate:,.0f} samples/s"
        self._bar.update(self._task, state=state)

    def say(self, state: str) -> None:
        """Show the current activity until the first shard is finished."""
        self._bar.update(self._task, state=state)


@dataclass(frozen=True)
class Preparation:
    """The result of a preparation. `manifests` and `folders` have one entry for each split (`""` is the corpus itself).

    `dropped` counts by "Stage: reason"; `read` is the number of raw records; `seconds` is the time of this call, and
    `skipped` the number of shards that existed before. `place` is the corpus as it was named, for people.
    """

    manifests: dict[str, Manifest]
    folders: dict[str, Path]
    dropped: dict[str, int]
    seconds: float
    skipped: int = 0
    place: Path | str = ""

    @property
    def passed_over(self) -> dict[str, tuple[int, list[str]]]:
        """The files in the inputs' folders that were not read: the count and the first names by kind."""
        left = self.manifests[""].provenance.get("passed_over", {})
        return {what: (reported["files"], reported["first"]) for what, reported in left.items()}

    @property
    def read(self) -> int:
        return sum(m.records for m in self.manifests.values()) + records_of(self.dropped)

    @property
    def rate(self) -> float:
        """Raw records per second in this call."""
        return self.read / max(self.seconds, 1e-9)


def records_of(dropped: Mapping[str, int]) -> int:
    """The number of dropped records; a number that was written as null drops none."""
    return sum(count for reason, count in dropped.items() if reason != NOT_FINITE)


def show(result: Preparation) -> None:
    """A table of kept and dropped records, stage by stage."""
    table = Table(title=Text(f"{result.place} ({result.seconds:.1f} s, {result.rate:,.0f} samples/s)"))
    table.add_column("stage")
    table.add_column("samples", justify="right")
    table.add_row("read", f"{result.read:,}")
    for what, (count, names) in result.passed_over.items():
        shown = ", ".join(name[:SHOWN] for name in names[:2])
        table.add_row(Text(f"files passed over, {what}: {shown}{' ...' if count > 2 else ''}"), f"{count:,}")
    for reason, count in sorted(result.dropped.items()):
        table.add_row(Text(f"{'kept' if reason == NOT_FINITE else 'dropped'}, {reason}"), f"{count:,}")
    for part, manifest in result.manifests.items():
        count = len(manifest.shards)
        shards = f"{count} shard{'' if count == 1 else 's'}, {manifest.bytes / 1e6:,.1f} MB"
        table.add_row(Text(f"kept in {result.folders[part].name} ({shards})"), f"{manifest.records:,}")
    if result.skipped:
        table.add_row("shards finished before", f"{result.skipped:,}")
    console.print(table)
