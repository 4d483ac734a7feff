"""Numbers of runs as the cells of a table."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from workbench.runs.metrics_file import read_metrics, read_results


def result_of(run: Path, control: str | None = None) -> dict[str, Any] | None:
    """The last result of a run that was evaluated under a control, or as it is."""
    results = [one for one in read_results(run) if one["control"] == control] if run.exists() else []
    return results[-1] if results else None


def spread(values: list[float]) -> str:
    """Mean and deviation (n - 1)."""
    if len(values) < 2:
        return "".join(f"{value:.3f}" for value in values)
    return f"{statistics.fmean(values):.3f} ± {statistics.stdev(values):.3f}"


def step_seconds(run: Path) -> str:
    """Seconds of a step of pretraining."""
    records = read_metrics(run) if run.exists() else []
    return f"{records[-1]['seconds'] / records[-1]['step']:.2f}" if records else ""


def markdown(rows: list[list[str]]) -> str:
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|---" * len(rows[0]) + "|", *body])
