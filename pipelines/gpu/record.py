"""What the parts of `workbench check` find (checks that pass or fail, numbers, notes), and how they are run."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from workbench.core.errors import WorkbenchError, message, unknown
from workbench.core.processes.distributed import World

logger = logging.getLogger(__name__)
Size = Literal["base", "tiny"]
Status = Literal["passed", "failed", "incomplete"]


@dataclass(frozen=True)
class Setting:
    """The inputs of all sections: the card, the folder for corpora and runs, and the size of the models.

    `tiny` tries the script itself: its numbers say nothing of the card.
    """

    device: torch.device
    folder: Path
    size: Size = "base"

    @property
    def world(self) -> World:
        """One rank on the card."""
        return World(device=self.device)

    @property
    def small(self) -> Path:
        """The folder of the corpora that `pipelines.gpu.corpora.prepare_small` makes."""
        return self.folder / "corpora" / "small"

    @property
    def random(self) -> Path:
        """The folder of the corpora that `pipelines.gpu.corpora.prepare_random` makes."""
        return self.folder / "corpora" / f"random-{self.size}"


@dataclass(frozen=True)
class Check:
    """One question to the card: what was found, what is allowed, and the numbers behind it."""

    name: str
    passed: bool
    found: str
    allowed: str
    numbers: dict[str, Any] = field(default_factory=dict)


class CheckRecord:
    """The results of one section so far. They are kept where the section raises or its time is over.

    Args:
        seconds: the section's budget. A section asks `in_time` before each of its items.
    """

    def __init__(self, name: str, title: str, seconds: float) -> None:
        self.name, self.title, self.budget = name, title, seconds
        self.checks: list[Check] = []
        self.notes: list[str] = []
        self.skipped: list[str] = []
        self.error: str | None = None
        self.seconds = 0.0
        self._started = time.perf_counter()

    @property
    def left(self) -> float:
        """Seconds of the budget that are left."""
        return self.budget - (time.perf_counter() - self._started)

    def check(self, name: str, passed: bool, found: str, allowed: str, **numbers: Any) -> None:
        """Write down a check."""
        self.checks.append(Check(name, bool(passed), found, allowed, numbers))

    def below(self, name: str, value: float, limit: float, **numbers: Any) -> None:
        """Write down a check that a number is finite and at most a limit."""
        self.check(name, value <= limit, f"{value:.3g}", f"<= {limit:g}", value=value, limit=limit, **numbers)

    def note(self, text: str) -> None:
        """Write down what is no check."""
        self.notes.append(text)

    def in_time(self, items: Sequence[str]) -> Iterator[str]:
        """The items one after the other while time is left; those that have no time are written down as skipped."""
        for number, item in enumerate(items):
            if self.left <= 0:
                self.skipped += items[number:]
                return
            yield item

    @contextmanager
    def guarded(self, item: str) -> Iterator[None]:
        """An error inside becomes a failed check of the item, so that the section's other items continue."""
        try:
            yield
        except (Exception, SystemExit) as error:
            logger.warning("%s, %s: %s", self.name, item, error, exc_info=not isinstance(error, WorkbenchError))
            self.check(item, False, reported(error), "no error", error=reported(error))

    @property
    def status(self) -> Status:
        """Failed for an error or a failed check; incomplete where time was short or nothing was checked."""
        if self.error is not None or not all(check.passed for check in self.checks):
            return "failed"
        return "incomplete" if self.skipped or not self.checks else "passed"

    def as_dict(self) -> dict[str, Any]:
        """The record as JSON has it."""
        return {
            "part": self.name,
            "title": self.title,
            "status": self.status,
            "seconds": round(self.seconds, 1),
            "budget": round(self.budget, 1),
            "checks": [vars(check) for check in self.checks],
            "notes": self.notes,
            "skipped": self.skipped,
            "error": self.error,
        }


@dataclass(frozen=True)
class CheckPart:
    """A part of the check: a function that fills a record, and its share of the time in seconds."""

    name: str
    title: str
    run: Callable[[Setting, CheckRecord], None]
    seconds: float


def reported(error: BaseException) -> str:
    """An error in one line, with the place in the code where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename]
    place = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    text = message(error) if isinstance(error, WorkbenchError) else str(error)
    return f"{type(error).__name__}: {' '.join(text.split())[:600]}{place}"


def chosen(parts: Sequence[CheckPart], names: Sequence[str]) -> list[CheckPart]:
    """The parts of these names, in their own order; all of them for no names.

    Raises:
        WorkbenchError: a name that no part has.
    """
    known = {part.name: part for part in parts}
    for name in names:
        if name not in known:
            raise unknown("part", name, known)
    return [part for part in parts if not names or part.name in names]


def run_parts(parts: Sequence[CheckPart], setting: Setting, seconds: float) -> list[CheckRecord]:
    """Run the sections one after the other. A section that raises is recorded as failed, and the others continue.

    Args:
        seconds: the time for all; the share of a section is proportional to its own seconds.
    """
    whole = sum(part.seconds for part in parts)
    records = []
    for part in parts:
        logger.info("%s: %s", part.name, part.title)
        record = CheckRecord(part.name, part.title, seconds * part.seconds / whole)
        started = time.perf_counter()
        try:
            part.run(setting, record)
        except (Exception, SystemExit) as error:
            logger.warning("%s ended with an error", part.name, exc_info=True)
            record.error = reported(error)
        record.seconds = time.perf_counter() - started
        logger.info("%s: %s in %.0f s", part.name, record.status, record.seconds)
        records.append(record)
    return records
