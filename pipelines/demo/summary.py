"""The results of the demo: `summary.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from workbench.core.files.drafts import atomic
from workbench.runs.metrics_file import read_metrics, read_results
from workbench.runs.names import runs_below

NUMBERS = {
    "facts": ["accuracy", "mrr"],
    "entity-typing": ["loose_micro/f1", "strict_accuracy"],
    "vqa": ["accuracy"],
    "retrieval": [f"{side}_retrieval/r{k}" for side in ("image", "text") for k in (1, 5, 10)],
}
"""The numbers of each task in the summary."""


def write_summary(path: Path, seconds: dict[str, float], in_all: float) -> dict[str, Any]:
    """Collect every run's evaluations and speed below `runs/` in one file.

    Args:
        seconds: processor time, by stage.
        in_all: seconds from the start to the end; jobs ran in parallel.
    """
    runs = runs_below(Path("runs"))
    scenes = json.loads(Path("raw/scenes/scenes.json").read_text(encoding="utf-8"))
    summary = {
        "seconds_in_all": round(in_all, 1),
        "core_seconds": {stage: round(s, 1) for stage, s in seconds.items()},
        "runs": {run.name: _speed(run) for run in runs},
        "evaluations": [row for run in runs for row in _evaluations(run)],
        "image_retrieval_r1_ceiling": scenes["heldout"]["image_retrieval_r1_ceiling"],
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
    for found in read_results(run):
        names = NUMBERS.get(found["task"], [])
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
