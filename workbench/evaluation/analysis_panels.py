"""The panel of a report for the analyses of networks: curves by layer, and tables of shares as shades."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.report.chart import Series, line_chart
from workbench.report.html import escape, section, table
from workbench.report.run import Record, Run

TITLES = {
    "anisotropy": "Anisotropy and self-similarity by layer",
    "cka": "CKA of two networks",
    "heads": "Attention heads",
    "layers": "Linear probes by layer",
    "robustness": "Accuracy on changed texts",
}
_PLACED = re.compile(r"(.+)/(layer|removed)_(\d+)")
X_LABELS = {"layer": "layer (0: the embedding)", "removed": "heads removed, %"}


def analysed(run: Run) -> str | None:
    """A section for each analysis of the run: its curves, and the tables of its examples."""
    found = [_section(result) for result in run.evaluations if result["task"] in TITLES]
    return "".join(found) or None


def _section(result: Record) -> str:
    corpus = (result.get("inputs") or {}).get("corpus")
    place = Path(str(corpus.get("path", ""))).name if isinstance(corpus, dict) else ""
    control = f"evaluated with {result['control']}" if result.get("control") else ""
    note = ", ".join(filter(None, (place, str(result.get("variant") or ""), control)))
    shown = "".join(_part(name, value) for example in result.get("examples") or () for name, value in example.items())
    return section(TITLES[result["task"]], f'<div class="charts">{_curves(result)}</div>{shown}', note)


def _curves(result: Record) -> str:
    """A chart for each kind of place, with a line for each number and baseline."""
    places: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for whose, numbers in {"": result["numbers"], **(result.get("baselines") or {})}.items():
        for name, value in numbers.items():
            if found := _PLACED.fullmatch(name):
                line = ", ".join(filter(None, (found[1].replace("_", " "), whose)))
                places.setdefault(found[2], {}).setdefault(line, []).append((float(found[3]), float(value)))
    return "".join(
        line_chart([Series(name, points) for name, points in lines.items()], X_LABELS[place], result["task"])
        for place, lines in places.items()
    )


def _part(name: str, value: Any) -> str:
    """A text of an example, or a table."""
    return f"<p>{escape(name)}: {escape(value)}</p>" if isinstance(value, str) else _shades(name, value)


def _shades(name: str, rows: Sequence[Sequence[Any]]) -> str:
    """A table of shares, each shaded by its size."""
    most = max((float(value) for row in rows for value in row), default=0.0) or 1.0
    cells = [
        ("", [("", str(number)), *(("n", _shade(float(value), most)) for value in row)])
        for number, row in enumerate(rows)
    ]
    width = max(map(len, rows), default=0)
    return f"<p>{escape(name)}</p>{table(['', *map(str, range(width))], cells)}"


def _shade(value: float, most: float) -> str:
    share = min(max(value / most, 0.0), 1.0)
    return f'<span style="background:rgba(194,104,43,{0.75 * share:.2f})">{value:.2f}</span>'
