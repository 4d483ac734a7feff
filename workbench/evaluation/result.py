"""What an evaluation found: the numbers, the counts, and the identity of everything that went in."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from workbench.corpora.corpus import Corpus
from workbench.files.drafts import atomic
from workbench.terminal import Terminal


@dataclass
class Result:
    """A result as it is written to `evaluations/*.json` of a run.

    `variant` names the convention of the metric where published scripts differ; `control` what was taken away;
    `inputs` are the run's checkpoint and the corpora with their checksums; `examples` are a few predictions, which the
    `panels` (import paths, `workbench.report.panels`) show.
    """

    task: str
    numbers: dict[str, float]
    counts: dict[str, int]
    inputs: dict[str, Any] = field(default_factory=dict)
    variant: str = ""
    control: str | None = None
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)
    examples: list[dict[str, Any]] = field(default_factory=list)
    panels: list[str] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Write JSON, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as file:
            file.write((json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False) + "\n").encode())

    def table(self) -> Table:
        """The numbers beside those of the baselines."""
        title = self.task + (f", control: {self.control}" if self.control else "")
        table = Table(title=title, caption=self.variant or None)
        table.add_column("")
        table.add_column("result", justify="right")
        for name in self.baselines:
            table.add_column(name, justify="right")
        for name, value in self.numbers.items():
            others = [baseline.get(name) for baseline in self.baselines.values()]
            table.add_row(name, f"{value:.4g}", *("" if other is None else f"{other:.4g}" for other in others))
        return table

    def show(self, console: Console | None = None) -> None:
        (console or Terminal()).print(self.table())


def corpus_input(corpus: Corpus) -> dict[str, Any]:
    """A corpus among a result's `inputs`: its place, its size and its identity (a checksum of the content)."""
    return {"path": str(corpus.place), "records": corpus.records, "sha256": corpus.identity}
