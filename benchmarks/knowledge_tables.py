"""The tables of `benchmarks.knowledge_results`, read from its runs: systems at one budget, and how much was linked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.knowledge_inputs import coverage
from benchmarks.knowledge_systems import SYSTEMS
from benchmarks.result_tables import result_of, spread, step_seconds


@dataclass(frozen=True)
class Task:
    """The use of a labelled set: a task, options of fine-tuning and evaluation, the reported numbers."""

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


def numbers_of(name: str, task: str, seeds: int, output: Path) -> dict[str, list[float]]:
    """The numbers of a system on a set, each over the seeds that are there."""
    results = [result_of(output / "runs" / f"{task}-{name}-seed-{seed}") for seed in range(seeds)]
    return {metric: [result["numbers"][metric] for result in results if result] for metric in TASKS[task].shown}


def baselines_of(task: str, output: Path) -> dict[str, dict[str, float]]:
    """The baselines next to a set's results, by name; the probe is of the vectors that ernie-thu reads."""
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
            cells = [spread(found[task][metric]) for task, metric in columns]
            many = "-".join(map(str, sorted(counts)))
            rows.append([name, SYSTEMS[name].without, many, *cells, step_seconds(output / "runs" / f"{name}-seed-0")])
    baselines = {task: baselines_of(task, output) for task in TASKS}
    for name in dict.fromkeys(name for of in baselines.values() for name in of):
        values = [baselines[task].get(name, {}).get(metric) for task, metric in columns]
        rows.append([name, "", "", *("" if value is None else f"{value:.3f}" for value in values), ""])
    return rows


def covered(output: Path) -> list[list[str]]:
    """Head and rows: how many mentions are linked."""
    rows = [["set", "marked mentions in the graph", "texts with a link"]]
    for name, of in coverage(output / "corpora").items():
        rows.append([name, f"{of['mentions']:.1%}", f"{of['texts']:.1%}"])
    return rows
