"""The tables of results: per task, every run with its control, and the baselines."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from workbench.metrics.baselines import against
from workbench.metrics.resampling import how_sure
from workbench.report.chart import Series, line_chart
from workbench.report.html import decimals_of, escape, fixed, metric_name, number, section, table
from workbench.report.lines import Line, Values, baselines_of, distinguished, identity, lines_of
from workbench.report.run import Record, Run, loss_names
from workbench.report.seeds import by_seed, mean_series, merged_run, name_of, seed_spread
from workbench.runs.metric_tables import HELD_OUT

MAX_COLUMNS = 8
MAX_CLASSES = 40


class ResultRow(NamedTuple):
    """A row of a table of results; `label` is HTML, `intervals` are by number."""

    kind: str
    label: str
    numbers: Values
    items: int | None = None
    seeds: int | None = None
    intervals: Mapping[str, Any] = MappingProxyType({})


def results(runs: Sequence[Run]) -> str | None:
    """One table per task and test set and one chart per shared objective; None if there is nothing to compare."""
    tests = dict.fromkeys((result["task"], test_set_of(result)) for run in runs for result in run.evaluations)
    drawn = "".join(_task(task, test_set, runs) for task, test_set in sorted(tests)) + _curves(runs)
    return f'<section class="results"><h2>Results</h2>{drawn}</section>' if drawn else None


def test_set_of(result: Record) -> str:
    """The name of a result's corpus; empty if it is unknown."""
    corpus = (result.get("inputs") or {}).get("corpus")
    place = corpus.get("path", "") if isinstance(corpus, dict) else corpus or ""
    return str(place).rstrip("/").rsplit("/", 1)[-1]


def _task(task: str, test_set: str, runs: Sequence[Run]) -> str:
    wanted = (task, test_set)
    found = [(run, r) for run in runs for r in run.evaluations if (r["task"], test_set_of(r)) == wanted]
    lines = distinguished(
        [line for group in by_seed(runs) for line in lines_of(group, [(run, r) for run, r in found if run in group])]
    )
    names = list(dict.fromkeys(name for line in lines for name in line.numbers))
    bounds = {name for line in lines for name in line.bounds}
    rows = [
        ResultRow(line.kind, _label(line), line.numbers, line.items, len(line.group), line.intervals) for line in lines
    ]
    rows += [ResultRow("baseline", _baseline(name, bounds), numbers) for name, numbers in baselines_of(lines)]
    rows.sort(key=lambda row: ("result", "control", "baseline").index(row.kind))
    body = _table(names[:MAX_COLUMNS], rows)
    if names[MAX_COLUMNS:]:
        body += f"<details><summary>All {len(names)} numbers</summary>{_turned(names, rows)}</details>"
    body += _classes(lines)
    variants = sorted({str(result["variant"]) for _, result in found if result.get("variant")})
    notes = [f"Variant of the metric: {', '.join(variants)}."] if variants else []
    notes += _budgets([line.group for line in lines])
    sure = how_sure({name: interval for line in lines for name, interval in line.intervals.items()})
    notes += [f"{sure}."] if sure else []
    return section(f"{task}: {test_set}" if test_set else task, body + _sources(found), " ".join(notes))


def _budgets(groups: Sequence[Sequence[Run]]) -> list[str]:
    """Notes on the training budgets of several runs: the common one, or that of each run."""
    collected: dict[str, dict[str, None]] = {}
    for group in groups:
        collected.setdefault(group[0].budget, {})[name_of(group)] = None
    collected.pop("", None)
    if len({name for names in collected.values() for name in names}) < 2:
        return []
    if len(collected) == 1:
        return [f"All trained for {next(iter(collected))}."]
    each = "; ".join(f"{budget}: {', '.join(names)}" for budget, names in collected.items())
    return [f"Not trained alike: {each}."]


def _curves(runs: Sequence[Run]) -> str:
    """The losses that several runs have, one line per run or mean of seeds: held-out losses if they were measured."""
    groups = by_seed(runs)
    shared = [name for name in loss_names(runs) if sum(bool(_loss(group, name).points) for group in groups) > 1]
    charts = [
        line_chart([_loss(group, name) for group in groups], "step", name.removesuffix("/loss") + " loss")
        for name in shared
    ]
    return section("The runs' losses", f'<div class="charts">{"".join(charts)}</div>') if charts else ""


def _loss(group: Sequence[Run], name: str) -> Series:
    """The held-out loss if it was measured, else the training loss; the legend says which, and on which corpora."""
    held_out = mean_series(group, HELD_OUT + name)
    corpora = ", ".join(Path(place).name for place in (group[0].held_out if held_out else group[0].corpora))
    what = ("held out" if held_out else "training") + (f" on {corpora}" if corpora else "")
    return Series(f"{name_of(group)}, {what}", held_out or mean_series(group, name), held_out=bool(held_out))


def _table(names: Sequence[str], rows: Sequence[ResultRow]) -> str:
    decimals = {name: decimals_of(_shown(row.numbers.get(name, ())) for row in rows) for name in names}
    cells = [
        (
            row.kind,
            [
                ("name", row.label),
                *(("n", _cell(row, name, decimals[name])) for name in names),
                *(("n", "" if count is None else number(count)) for count in (row.items, row.seeds)),
            ],
        )
        for row in rows
    ]
    return table(["", *names, "items", "seeds"], cells)


def _cell(row: ResultRow, name: str, decimals: int | None) -> str:
    """A number with its interval, or the mean of several seeds with its deviation; "" if there is none."""
    if name not in row.numbers:
        return ""
    interval = row.intervals.get(name)
    ends = [fixed(interval[end], decimals) for end in ("low", "high")] if interval else []
    beneath = f' <span class="spread">{" – ".join(ends)}</span>' if ends else ""
    return seed_spread(row.numbers[name], decimals) + beneath


def _shown(values: Sequence[Any]) -> float | None:
    """The mean that a cell shows."""
    real = [value for value in values if isinstance(value, int | float)]
    return statistics.fmean(real) if real and len(real) == len(values) else None


def _turned(names: Sequence[str], rows: Sequence[ResultRow]) -> str:
    heads = "".join(f"<th>{row.label}</th>" for row in rows)
    body = "".join(
        f'<tr><td class="name">{metric_name(name)}</td>'
        + "".join(f'<td class="n">{_cell(row, name, None)}</td>' for row in rows)
        + "</tr>"
        for name in names
    )
    return f'<div class="scroll"><table><thead><tr><th></th>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def _classes(lines: Sequence[Line]) -> str:
    """F1 of each of the most frequent classes, a column per result."""
    collected = [line for line in lines if all(result.get("classes") for result in line.results)]
    if not collected:
        return ""
    gold = {name: of["gold"] for line in collected for name, of in line.results[0]["classes"].items()}
    most = sorted(gold, key=lambda name: -gold[name])[:MAX_CLASSES]
    rows: list[tuple[str, Values]] = [("gold", {name: (number,) for name, number in gold.items()})]
    for line in collected:
        scores = [{name: of["f1"] for name, of in result["classes"].items()} for result in line.results]
        rows.append((_label(line), merged_run(scores)))
    shown = _turned(most, [ResultRow("", label, {name: of[name] for name in most if name in of}) for label, of in rows])
    few = f", the {MAX_CLASSES} most frequent of {len(gold)}" if len(gold) > MAX_CLASSES else ""
    return f"<details><summary>F1 by class{few}</summary>{shown}</details>"


def _label(line: Line) -> str:
    """The name of the run, or of the group of seeds, with the tags of the result."""
    collected = "".join(f' <span class="tag">{escape(tag)}</span>' for tag in line.tags)
    return escape(line.name) + collected + _below(line)


def _below(line: Line) -> str:
    """A tag if a result's mean is below that of a baseline; controls have none."""
    if line.kind == "control":
        return ""
    theirs = {baseline: _means(numbers) for baseline, numbers in line.baselines.items()}
    said = escape(against(_means(line.numbers), theirs, line.bounds))
    return f' <span class="tag below">{said}</span>' if said else ""


def _means(numbers: Values) -> dict[str, float]:
    """The means of the numeric values."""
    real = {name: values for name, values in numbers.items() if all(isinstance(v, int | float) for v in values)}
    return {name: statistics.fmean(values) for name, values in real.items()}


def _baseline(name: str, bounds: Collection[str]) -> str:
    upper = name in bounds or name.rpartition(" (")[0] in bounds
    return f'{escape(name)} <span class="tag">{"upper bound" if upper else "baseline"}</span>'


def _sources(found: Sequence[tuple[Run, Record]]) -> str:
    """The counts and the inputs of the results."""
    lines = []
    for run, result in found:
        counts = [f"{number(value)} {escape(name)}" for name, value in (result.get("counts") or {}).items()]
        used = [f"{number(value)} {escape(name)} used" for name, value in (result.get("used") or {}).items()]
        lost = [f"{number(value)} left out: {escape(name)}" for name, value in (result.get("dropped") or {}).items()]
        parts = [*counts, *used, *lost]
        inputs = [f"{escape(name)} {escape(identity(value))}" for name, value in (result.get("inputs") or {}).items()]
        if parts or inputs:
            lines.append(f"<li><b>{escape(run.name)}</b> {'; '.join([*parts, *inputs])}</li>")
    return (
        f'<details><summary>Counts and inputs</summary><ul class="inputs">{"".join(lines)}</ul></details>'
        if lines
        else ""
    )
