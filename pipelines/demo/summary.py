"""What the demo found: `summary.json`, and the same as a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from workbench.corpora.files import atomic
from workbench.training.metrics import read_metrics

COLUMNS = {
    "facts": {"accuracy": ["accuracy"], "mrr": ["mrr"]},
    "entity-typing": {"micro F1": ["loose_micro/f1"], "strict": ["strict_accuracy"]},
    "vqa": {"accuracy": ["accuracy"]},
    "retrieval": {
        f"{side} R@1/5/10": [f"{side}_retrieval/r{k}" for k in (1, 5, 10)] for side in ("image", "text")
    },
}  # fmt: skip
"""Per task, the table's columns and the numbers in each."""


def write_summary(path: Path, seconds: dict[str, float]) -> dict[str, Any]:
    """Gather every run's evaluations and speed below `runs/` into one file, and the seconds of each stage."""
    runs = sorted(folder.parent for folder in Path("runs").glob("*/recipe.yaml"))
    summary = {
        "seconds": {stage: round(s, 1) for stage, s in seconds.items()},
        "seconds_in_all": round(sum(seconds.values()), 1),
        "runs": {run.name: _speed(run) for run in runs},
        "evaluations": [row for run in runs for row in _evaluations(run)],
    }
    with atomic(path) as file:
        file.write((json.dumps(summary, indent=1, ensure_ascii=False) + "\n").encode())
    return summary


def _speed(run: Path) -> dict[str, float]:
    records = [r for r in read_metrics(run) if "tokens_per_second" in r]
    if not records:
        return {}
    rates = sorted(r["tokens_per_second"] for r in records)
    return {
        "steps": records[-1]["step"],
        "seconds": round(records[-1]["seconds"], 1),
        "tokens_per_second": round(rates[len(rates) // 2]),
    }


def _evaluations(run: Path) -> list[dict[str, Any]]:
    rows = []
    for file in sorted((run / "evaluations").glob("*.json")):
        found = json.loads(file.read_text(encoding="utf-8"))
        names = [name for column in COLUMNS.get(found["task"], {}).values() for name in column]
        rows.append(
            {
                "run": run.name,
                "task": found["task"],
                "corpus": Path(found["inputs"]["corpus"]["path"]).name,
                "control": found.get("control"),
                "numbers": {n: found["numbers"][n] for n in names if n in found["numbers"]},
                "baselines": {
                    name: {n: values[n] for n in names if n in values} for name, values in found["baselines"].items()
                },
                "counts": found["counts"],
                "variant": found["variant"],
            }
        )
    return rows


def show_summary(path: Path, console: Console) -> None:
    """Print the summary's results and where the time went."""
    summary = json.loads(path.read_text(encoding="utf-8"))
    for task in COLUMNS:
        rows = [row for row in summary["evaluations"] if row["task"] == task]
        if rows:
            console.print(_table(task, rows, summary["runs"]))
    stages = ", ".join(f"{escape(stage)} {seconds:.0f} s" for stage, seconds in summary["seconds"].items())
    console.print(f"{summary['seconds_in_all']:.0f} s in all: {stages}", highlight=False)


def _table(task: str, rows: list[dict[str, Any]], runs: dict[str, dict[str, float]]) -> Table:
    table = Table(title=task, title_justify="left")
    for column in ("run", "test set"):
        table.add_column(column, overflow="fold")
    for column in ("steps", *COLUMNS[task]):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        control = f", {row['control']} in the test" if row["control"] else ""
        steps = runs.get(row["run"], {}).get("steps", "")
        table.add_row(escape(row["run"] + control), row["corpus"], str(steps), *_cells(task, row["numbers"]))
    for name, corpus, values in _baselines(rows):
        table.add_row(escape(name), corpus, "", *_cells(task, values), style="dim")
    return table


def _baselines(rows: list[dict[str, Any]]) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Name, test set and numbers of each baseline: once where it is the same for all runs, else for each run."""
    found: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for row in rows:
        for name, values in row["baselines"].items():
            if values:
                found.setdefault((name, row["corpus"]), {})[row["run"]] = values
    for (name, corpus), by_run in found.items():
        if len({tuple(values.items()) for values in by_run.values()}) == 1:
            yield name, corpus, next(iter(by_run.values()))
        else:
            yield from ((f"{name}, {run}", corpus, values) for run, values in by_run.items())


def _cells(task: str, numbers: dict[str, float]) -> list[str]:
    return [" ".join(_number(numbers[n]) for n in names if n in numbers) for names in COLUMNS[task].values()]


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) <= 1 else f"{value:.1f}"
