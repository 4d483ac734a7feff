"""The tables of `benchmarks.knowledge_results`, read from its runs: systems at one budget, and how much was linked."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.knowledge_inputs import coverage
from benchmarks.knowledge_systems import SYSTEMS
from workbench.runs.metrics import read_metrics
from workbench.runs.results import read_results


@dataclass(frozen=True)
class Task:
    """What is done with a labelled set: a task, options of fine-tuning and evaluation, the numbers that are told."""

    command: str
    tuning: tuple[str, ...]
    scoring: tuple[str, ...]
    shown: tuple[str, ...]


TASKS = {
    "fewrel": Task("relations", (), (), ("accuracy", "macro_f1")),
    "ufet": Task(  # at this budget most mentions have no type that is likelier than not: the likeliest counts too
        "entity-typing",
        ("--types", "open-entity", "--marker", "@"),
        ("--gold", "inventory", "--rule", "positive_or_top"),
        ("loose_micro/f1", "strict_accuracy"),
    ),
    "semeval": Task("relations", ("--negative", "Other"), (), ("relations_macro_f1", "accuracy")),
}


def result_of(run: Path) -> dict[str, Any] | None:
    """The last result of a run."""
    results = read_results(run) if run.exists() else []
    return results[-1] if results else None


def numbers_of(name: str, task: str, seeds: int, output: Path) -> dict[str, list[float]]:
    """The numbers of a system on a set, each over the seeds that are there."""
    results = [result_of(output / "runs" / f"{task}-{name}-seed-{seed}") for seed in range(seeds)]
    return {metric: [result["numbers"][metric] for result in results if result] for metric in TASKS[task].shown}


def baselines_of(task: str, output: Path) -> dict[str, dict[str, float]]:
    """The baselines beside a set's results, by name; the probe is of the vectors that ernie-thu reads."""
    found: dict[str, dict[str, float]] = {}
    for name in ("bert", "ernie-thu"):
        found |= (result_of(output / "runs" / f"{task}-{name}-seed-0") or {}).get("baselines", {})
    return found


def table(seeds: int, output: Path) -> list[list[str]]:
    """Head and rows: systems, and baselines below them."""
    columns = [(task, metric) for task, of in TASKS.items() for metric in of.shown]
    rows = [["", "without knowledge", "seeds", *(f"{task} {metric}" for task, metric in columns), "s/step"]]
    for name in SYSTEMS:
        found = {task: numbers_of(name, task, seeds, output) for task in TASKS}
        counts = {len(found[task][metric]) for task, metric in columns}
        if any(counts):
            told = [spread(found[task][metric]) for task, metric in columns]
            many = "-".join(map(str, sorted(counts)))
            rows.append([name, SYSTEMS[name].without, many, *told, step_seconds(output / "runs" / f"{name}-seed-0")])
    baselines = {task: baselines_of(task, output) for task in TASKS}
    for name in dict.fromkeys(name for of in baselines.values() for name in of):
        values = [baselines[task].get(name, {}).get(metric) for task, metric in columns]
        rows.append([name, "", "", *("" if value is None else f"{value:.3f}" for value in values), ""])
    return rows


def spread(values: list[float]) -> str:
    """Mean and deviation (n - 1)."""
    if len(values) < 2:
        return "".join(f"{value:.3f}" for value in values)
    return f"{statistics.fmean(values):.3f} ± {statistics.stdev(values):.3f}"


def step_seconds(run: Path) -> str:
    """Seconds of a step of pretraining."""
    records = read_metrics(run) if run.exists() else []
    return f"{records[-1]['seconds'] / records[-1]['step']:.2f}" if records else ""


def covered(output: Path) -> list[list[str]]:
    """Head and rows: how many mentions are linked."""
    rows = [["set", "marked mentions in the graph", "texts with a link"]]
    for name, of in coverage(output / "corpora").items():
        rows.append([name, f"{of['mentions']:.1%}", f"{of['texts']:.1%}"])
    return rows


def markdown(rows: list[list[str]]) -> str:
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|---" * len(rows[0]) + "|", *body])
