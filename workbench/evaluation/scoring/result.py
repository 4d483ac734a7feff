"""The result of an evaluation: the numbers, the counts, and the identity of every input."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from workbench.components.error_context import ErrorContext
from workbench.core.errors import unknown
from workbench.core.files.drafts import atomic
from workbench.core.files.text_files import parse_json
from workbench.core.html_table import html_of
from workbench.core.local_copies import with_urls
from workbench.core.terminal import Terminal
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.tables import class_table, group_tables, number_table
from workbench.runs.metrics_file import read_result

CHECKPOINTS = ("checkpoint", "first stage")
MAX_NAME = 200
SHOWN = 6  # numbers in a repr


@dataclass(repr=False)
class Result(Mapping[str, float]):
    """A result, as written to `evaluations/*.json` of a run. It is a mapping of its `numbers`: `result["accuracy"]`,
    `dict(result)`.

    Attributes:
        counts: what was counted; the first count is the number of measured items.
        variant: the convention of the metric, where published scripts differ.
        control: what was removed.
        bounds: the baselines that are no rivals, but the best that a task, a vocabulary or people allow.
        options: the options of the evaluation that differ from their default.
        inputs: the run's checkpoint, the corpus with its checksum, and in `read` the identity of everything else that
            was opened (`workbench.components.build_context`: the tokenizer, graphs, how true a shuffled one is).
        classes: the numbers of each class (`workbench.metrics.classes.by_class`).
        used: the knowledge that was added to the scored sequences.
        dropped: what was left out of them, by reason (None: not counted).
        examples, failures: a few predictions and the worst ones, which the `panels` show (import paths,
            `workbench.report.panels`).
        predictions, num_items: the predictions of each item, and their number (`items` in the file). They are next to
            the result, a line of JSON for each.
        intervals: 95 % intervals of numbers over these items.
        seed: the seed of the run.
        seen: how the run was trained on its test set, or chosen by it
            (`workbench.evaluation.scoring.training_overlap`).
        unlearned: what the run's training has not learned (`workbench.evaluation.scoring.learning_progress`).
    """

    task: str
    numbers: dict[str, float]
    counts: dict[str, int]
    inputs: dict[str, Any] = field(default_factory=dict)
    variant: str = ""
    control: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)
    bounds: list[str] = field(default_factory=list)
    classes: dict[str, dict[str, float]] = field(default_factory=dict)
    used: dict[str, int] | None = None
    dropped: dict[str, int] | None = None
    examples: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    panels: list[str] = field(default_factory=list)
    predictions: EvaluationItems = field(default_factory=EvaluationItems)
    num_items: int = 0
    seed: int | None = None
    seen: list[str] = field(default_factory=list)
    intervals: dict[str, dict[str, Any]] = field(default_factory=dict)
    unlearned: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        shown = [f"{name} {value:.4g}" for name, value in self.numbers.items()]
        more = [f"and {len(shown) - SHOWN} more"] if len(shown) > SHOWN else []
        said = ", ".join([*shown[:SHOWN], *more]) or "no numbers"
        return f"<Result {self.task}{f', control {self.control}' if self.control else ''}: {said}>"

    def __getitem__(self, name: str) -> float:
        """
        Raises:
            KeyError: there is no such number; the message names those that there are.
        """
        if name not in self.numbers:
            raise KeyError(str(unknown("number", str(name), self.numbers, f"the result of {self.task}")))
        return self.numbers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def take_intervals(self) -> None:
        """Work out how many items there are, and the intervals of their numbers.

        Raises:
            WorkbenchError: `predictions` are no items, or do not add up to the numbers (`EvaluationItems.check`).
        """
        with ErrorContext(f"task {self.task}"):
            self.predictions.check(self.numbers)
        self.num_items = len(self.predictions.lines)
        self.intervals = {name: found._asdict() for name, found in self.predictions.intervals().items()}

    def under_other_controls(self, folder: Path) -> dict[str, dict[str, float]]:
        """By its control, the numbers of what was measured of the same weights, on the same corpus, with the same
        options; what else was read (a graph, which the control removes) may differ.

        Raises:
            WorkbenchError: a file there cannot be read, or is no result; names it.
        """
        found: dict[str, dict[str, float]] = {}
        for path in sorted(folder.glob(f"{self.task}*.json")):
            record = read_result(path)
            if record.get("control") != self.control and _alike(record) == _alike(self.record()):
                found[f"control {record['control']}" if record.get("control") else "no control"] = record["numbers"]
        return found

    def write(self, folder: Path) -> Path:
        """Write JSON into a folder, whole or not at all; returns the file.

        Its name is <task>-<corpus>[-<control>][-<option>=<value>...].json (`predictions`: .jsonl). A result takes the
        place of an earlier one of the same inputs (but for the checkpoint) and options; where another one has that
        name, a checksum is added.
        """
        path = folder / f"{self._name()}.json"
        if path.is_file() and _what(parse_json(path.read_text(encoding="utf-8"))) != self._what():
            path = folder / f"{self._name()}-{hashlib.sha256(self._what().encode()).hexdigest()[:8]}.json"
        folder.mkdir(parents=True, exist_ok=True)
        if self.predictions.lines:
            self.predictions.write(path.with_suffix(".jsonl"))
        with atomic(path) as file:
            file.write((json.dumps(self.record(), indent=1, ensure_ascii=False) + "\n").encode())
        return path

    def record(self) -> dict[str, Any]:
        """The content of the JSON file; it names URLs, not their local copies."""
        written = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "predictions"}
        return with_urls({"items" if name == "num_items" else name: value for name, value in written.items()})

    def _name(self) -> str:
        corpus = self.inputs.get("corpus")
        place = Path(corpus["path"]).name if isinstance(corpus, dict) else ""
        chosen = (f"{name}={_word(value)}" for name, value in self.options.items())
        return "-".join(filter(None, (self.task, place, self.control, *chosen)))[:MAX_NAME]

    def _what(self) -> str:
        return _what(self.record())

    def table(self, folder: Path | None = None) -> Table:
        """The numbers next to those of the baselines, and of results under other controls that lie in the folder."""
        return number_table(self, self.under_other_controls(folder) if folder else {})

    def show(self, console: Console | None = None, folder: Path | None = None) -> None:
        """Print the table, and those of groups and classes."""
        console = console or Terminal()
        console.print(self.table(folder))
        for table in self._further_tables():
            console.print(table)

    def _further_tables(self) -> list[Table]:
        return [*group_tables(self), *([class_table(self)] if self.classes else [])]

    def _repr_html_(self) -> str:
        return html_of(self.table(), *self._further_tables())


def corpus_input(corpus: Corpus) -> dict[str, Any]:
    """A corpus among a result's `inputs`: its place, its size and its identity (a checksum of the content)."""
    return {"path": str(corpus.place), "records": corpus.records, "sha256": corpus.identity}


def _what(record: dict[str, Any]) -> str:
    """The identity of an evaluation without the weights: the corpora by their content, the control, the options."""
    inputs = {name: value for name, value in record.get("inputs", {}).items() if name not in CHECKPOINTS}
    identity = [record.get("task"), record.get("control"), record.get("options"), inputs]
    return json.dumps(identity, sort_keys=True, default=str)


def _alike(record: dict[str, Any]) -> str:
    """The identity of an evaluation with the weights, without the control."""
    inputs = {name: value for name, value in record.get("inputs", {}).items() if name != "read"}
    return json.dumps([record.get("task"), record.get("options"), inputs], sort_keys=True, default=str)


def _word(value: Any) -> str:
    """An option's value in a file name: of a path the last part."""
    values = value if isinstance(value, list) else [value]
    return "+".join(re.sub(r"[^\w.]+", "_", Path(str(each)).name) for each in values)
