"""A result in the terminal, at 80 columns: its numbers next to those of baselines and of other controls, then those of
groups that have many members, several to a line, and the classes by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from workbench.metrics.baselines import against
from workbench.metrics.resampling import how_sure

SHOWN = 20
OF_GROUP = 80
"""Number of shown members of a group: VQA has 65 types of questions, graphs may have thousands of relations."""
MANY = 8
FEW, WIDEST = 3, 18
"""Baselines that a table with lines has room for; next to more of them, the letters of a name on one line."""
_SIDE_BY_SIDE = 2


class TabledResult(Protocol):
    """The fields of a result that are shown (`workbench.evaluation.scoring.result.Result`)."""

    task: str
    numbers: dict[str, float]
    counts: dict[str, int]
    variant: str
    control: str | None
    baselines: dict[str, dict[str, float]]
    bounds: list[str]
    num_items: int
    seed: int | None
    intervals: dict[str, dict[str, Any]]
    classes: dict[str, dict[str, float]]
    used: dict[str, int] | None
    dropped: dict[str, int] | None
    unlearned: list[str]


def number_table(result: TabledResult, others: Mapping[str, Mapping[str, float]] = MappingProxyType({})) -> Table:
    """The numbers next to those of others, and of the baselines; not those that stand in a table of their group."""
    alongside = {**others, **result.baselines}
    title = result.task + (f", control: {result.control}" if result.control else "")
    counts = {"": result.counts, "used: ": result.used or {}, "left out: ": result.dropped or {}}
    measured = (
        [f"{result.num_items:,} items" + ("" if result.seed is None else f", seed {result.seed}")]
        if result.num_items
        else []
    )
    counted = [what + ", ".join(f"{n:,} {name}" for name, n in of.items()) for what, of in counts.items() if of]
    beneath = against(result.numbers, result.baselines, result.bounds)
    facts = (*measured, *counted, result.variant, beneath, how_sure(result.intervals), *result.unlearned)
    caption = "; ".join(filter(None, facts)) or None
    crowded = len(alongside) > FEW
    table = Table(title=title, caption=caption)
    if crowded:
        table.box, table.pad_edge, table.padding = SIMPLE_HEAD, False, (0, 1, 0, 0)
    table.add_column("", overflow="fold")
    table.add_column("result", justify="right", no_wrap=True)
    if result.intervals:
        table.add_column("95 %", justify="right", no_wrap=True)
    for name, numbers in alongside.items():
        head = f"{name} (upper bound)" if name in result.bounds else name
        shown = [_number(numbers.get(number)) for number in result.numbers]
        # a fixed width: rich would take letters from the words of the last column
        table.add_column(head, justify="right", width=max(map(len, (*head.split(), *shown))) if crowded else None)
    grouped = {f"{group}/{member}" for group, members in groups_of(result).items() for member in members}
    for name, value in result.numbers.items():
        if name not in grouped:
            sure = [interval_of(result.intervals.get(name))] if result.intervals else []
            row = [f"{value:.4g}", *sure, *(_number(numbers.get(name)) for numbers in alongside.values())]
            table.add_row(_broken(name) if crowded else name, *row)
    return table


def _broken(name: str) -> str:
    """A name on two lines where it is long."""
    before, slash, last = name.rpartition("/")
    return f"{before}{slash}\n  {last}" if slash and len(name) > WIDEST else name


def interval_of(interval: Mapping[str, Any] | None) -> str:
    """The ends of an interval, "" for none."""
    return "" if interval is None else f"{interval['low']:.3g} - {interval['high']:.3g}"


def groups_of(result: TabledResult) -> dict[str, list[str]]:
    """Groups of more than a few members (`accuracy/question_type` of `accuracy/question_type/what is`)."""
    found: dict[str, list[str]] = {}
    for name in result.numbers:
        *group, member = name.split("/", 2)
        if len(group) == 2:
            found.setdefault("/".join(group), []).append(member)
    return {group: members for group, members in found.items() if len(members) > MANY}


def group_tables(result: TabledResult) -> Iterator[Table]:
    """A table for each such group: its first members' numbers, next to those of the best baseline that has them; two
    members to a line. The others stand in the result's file."""
    for group, members in groups_of(result).items():
        alongside = _best(result, [f"{group}/{member}" for member in members])
        numbers, theirs = result.numbers, result.baselines.get(alongside or "", {})
        legend = [f"after the slash: {alongside}"] if alongside else []
        legend += [f"{len(members) - OF_GROUP:,} more in the result's file"] if len(members) > OF_GROUP else []
        table = Table(title=group, caption="; ".join(legend) or None, show_header=False, box=None)
        for _ in range(_SIDE_BY_SIDE):
            table.add_column(overflow="fold", max_width=26)
            table.add_column(justify="right", no_wrap=True)
        cells = [
            (escape(name), _pair(numbers[key], theirs.get(key)))
            for name in members[:OF_GROUP]
            for key in [f"{group}/{name}"]
        ]
        half = -(-len(cells) // _SIDE_BY_SIDE)
        cells += [("", "")] * (half * _SIDE_BY_SIDE - len(cells))
        for row in zip(*(cells[half * i : half * (i + 1)] for i in range(_SIDE_BY_SIDE)), strict=True):
            table.add_row(*(cell for pair in row for cell in pair))
        yield table


def class_table(result: TabledResult) -> Table:
    """A row for each class, the most frequent ones; those that are never predicted are named."""
    missed = [name for name, of in result.classes.items() if of["gold"] and not of["predicted"]]
    more = [f"{len(result.classes) - SHOWN:,} more in the result's file"] if len(result.classes) > SHOWN else []
    if missed:
        named = ", ".join(missed[:SHOWN]) + (", ..." if len(missed) > SHOWN else "")
        more.append(f"never predicted: {named}")
    table = Table(title="by class", caption="; ".join(more) or None)
    for name in ("", *next(iter(result.classes.values()))):
        table.add_column(name, justify="right" if name else "left")
    for name, of in list(result.classes.items())[:SHOWN]:
        table.add_row(name, *(f"{value:.4g}" for value in of.values()))
    return table


def _best(result: TabledResult, names: list[str]) -> str | None:
    """The baseline whose numbers of a group are the highest on the whole."""
    sums = {
        name: sum(of.get(key, 0.0) for key in names)
        for name, of in result.baselines.items()
        if any(key in of for key in names)
    }
    return max(sums, key=lambda name: sums[name]) if sums else None


def _pair(value: float, other: float | None) -> str:
    return f"{value:.1f}" if other is None else f"{value:.1f} / {other:.1f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
