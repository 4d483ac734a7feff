"""Trials: what one is, how they are drawn, run and counted."""

from __future__ import annotations

import json
import logging
import random
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.robustness.soak.processes import end_all
from tests.robustness.soak.world import World

logger = logging.getLogger(__name__)


class FindingError(Exception):
    """Something that must hold does not."""


class SkippedError(Exception):
    """The trial cannot be made on this machine."""


@dataclass
class Trial:
    """One trial: its generator, an empty folder of its own, the prepared inputs, and what it counts."""

    area: str
    seed: int
    number: int
    folder: Path
    world: World
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.seed} {self.area} {self.number}")

    @property
    def command(self) -> str:
        """What repeats it."""
        return f"python -m tests.robustness.soak --areas {self.area} --seed {self.seed} --trial {self.number}"

    def moment(self, most: int) -> int:
        """A place among `most` operations, from 1; the first ones, at which things are opened, come more often."""
        return self.rng.randint(1, max(1, most if self.rng.random() < 0.7 else most // 8))


Area = Callable[[Trial], None]


@dataclass
class Tally:
    """What came of an area's trials."""

    trials: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, str]] = field(default_factory=list)

    def plain(self) -> dict[str, object]:
        """For JSON."""
        return {
            "trials": self.trials,
            "seconds": round(self.seconds, 1),
            "counts": dict(sorted(self.counts.items())),
            "skipped": dict(self.skipped),
            "findings": self.findings,
        }


class Soak:
    """Runs trials of some areas, in turn and for equal times, and keeps count.

    Args:
        output: gets `AREA/NUMBER/` with the files and logs of each trial that found something, and `counts.json`.
    """

    def __init__(self, areas: Mapping[str, Area], world: World, output: Path, seed: int) -> None:
        self.areas, self.world, self.output, self.seed = areas, world, output, seed
        self.tallies = {name: Tally() for name in areas}

    @property
    def findings(self) -> list[dict[str, str]]:
        """All of them, as {command, found, kept}."""
        return [finding for tally in self.tallies.values() for finding in tally.findings]

    def run(self, seconds: float, first: int = 1) -> None:
        """Trials until the time is over; one that has begun is ended."""
        deadline = time.monotonic() + seconds
        numbers = dict.fromkeys(self.areas, first)
        while time.monotonic() < deadline:
            area = min(self.areas, key=lambda name: (self.tallies[name].seconds, name))
            self.trial(area, numbers[area])
            numbers[area] += 1

    def trial(self, area: str, number: int) -> str:
        """One trial; returns what was found, "" where all held."""
        tally, folder = self.tallies[area], self.output / area / str(number)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        trial = Trial(area, self.seed, number, folder, self.world)
        found, begun = "", time.monotonic()
        try:
            self.areas[area](trial)
        except FindingError as finding:
            found = str(finding)
        except SkippedError as reason:
            if not tally.skipped:
                logger.warning("SKIPPED: %s: %s", area, reason)
            tally.skipped[str(reason)] += 1
        except Exception:
            found = f"the trial itself failed:\n{traceback.format_exc()}"
        finally:
            end_all()
        tally.trials += 1
        tally.seconds += time.monotonic() - begun
        tally.counts.update(trial.counts)
        if found:
            tally.findings.append({"command": trial.command, "found": found, "kept": str(folder)})
            (folder / "finding.txt").write_text(f"{trial.command}\n\n{found}\n")
            logger.error("FINDING %s\n  %s", trial.command, found.replace("\n", "\n  "))
        else:
            shutil.rmtree(folder, ignore_errors=True)
        self.save()
        return found

    def save(self) -> None:
        """Write the counts so far to `counts.json`."""
        plain = {"seed": self.seed, "areas": {name: tally.plain() for name, tally in self.tallies.items()}}
        draft = self.output / ".counts.json.tmp"
        draft.write_text(json.dumps(plain, indent=2))
        draft.replace(self.output / "counts.json")


def require(holds: object, otherwise: str) -> None:
    """
    Raises:
        FindingError: `holds` is false.
    """
    if not holds:
        raise FindingError(otherwise)
