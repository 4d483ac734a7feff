"""Tables of the lines of metrics.jsonl: in long format, and by step."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from workbench.runs.metrics_file import Record

HELD_OUT = "held_out/"
"""The beginning of the names of held-out numbers."""
SHOWN = 20


def long_format(metrics: Sequence[Record]) -> list[Record]:
    """A row for each number: `step`, `split` (training or held-out), `name` without its split, `value`."""
    return [
        {
            "step": line["step"],
            "split": "held-out" if name.startswith(HELD_OUT) else "training",
            "name": name.removeprefix(HELD_OUT),
            "value": value,
        }
        for line in metrics
        for name, value in line.items()
        if name != "step"
    ]


def step_table(metrics: Sequence[Record], last: int = SHOWN) -> Table:
    """The losses and other numbers of objectives of the last steps with a line, each held-out number next to its twin.
    Speed and memory are left out."""
    steps: dict[int, Record] = {}
    for line in metrics:
        steps.setdefault(line["step"], {}).update(line)
    names = dict.fromkeys(name for line in steps.values() for name in line if "/" in name)
    ordered = sorted(names, key=lambda name: (name.removeprefix(HELD_OUT), name.startswith(HELD_OUT)))
    left_out = len(steps) - last
    table = Table(caption=f"the last {last} of {len(steps):,} steps with a line" if left_out > 0 else None)
    for name in ("step", *ordered):
        table.add_column(escape(name), justify="right")
    for step, line in [*steps.items()][-last:]:
        found = (line.get(name) for name in ordered)
        cells = ("" if value is None else f"{value:.4f}" if abs(value) < 100 else f"{value:,.0f}" for value in found)
        table.add_row(f"{step:,}", *cells)
    return table
