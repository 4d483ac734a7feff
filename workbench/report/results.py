"""The tables of results: per task, every run with its control, and the baselines beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.report.chart import Series, line_chart
from workbench.report.html import escape, metric_name, number, section, table
from workbench.report.run import HELD_OUT, Record, Run, loss_names

MAX_COLUMNS = 8
MAX_CLASSES = 40


def results(runs: Sequence[Run]) -> str | None:
    """One table per task and test set and one chart per shared objective; None where there is nothing to compare."""
    tests = dict.fromkeys((result["task"], test_set_of(result)) for run in runs for result in run.evaluations)
    drawn = "".join(_task(task, test_set, runs) for task, test_set in sorted(tests)) + _curves(runs)
    return f'<section class="results"><h2>Results</h2>{drawn}</section>' if drawn else None


def test_set_of(result: Record) -> str:
    """The name of the corpus that a result is on; empty where it does not say."""
    corpus = (result.get("inputs") or {}).get("corpus")
    place = corpus.get("path", "") if isinstance(corpus, dict) else corpus or ""
    return str(place).rstrip("/").rsplit("/", 1)[-1]


def _task(task: str, test_set: str, runs: Sequence[Run]) -> str:
    wanted = (task, test_set)
    found = [(run, r) for run in runs for r in run.evaluations if (r["task"], test_set_of(r)) == wanted]
    names = list(dict.fromkeys(name for _, result in found for name in result["numbers"]))
    rows = [(_kind(run, result), _label(run, result), result["numbers"]) for run, result in found]
    rows += [("baseline", _baseline(name), numbers) for name, numbers in _baselines(found).items()]
    rows.sort(key=lambda row: ("result", "control", "baseline").index(row[0]))
    body = _table(names[:MAX_COLUMNS], rows)
    if names[MAX_COLUMNS:]:
        body += f"<details><summary>All {len(names)} numbers</summary>{_turned(names, rows)}</details>"
    body += _classes(found)
    variants = sorted({str(result["variant"]) for _, result in found if result.get("variant")})
    note = f"Variant of the metric: {', '.join(variants)}." if variants else ""
    return section(f"{task}: {test_set}" if test_set else task, body + _sources(found), note)


def _curves(runs: Sequence[Run]) -> str:
    """The losses that several runs have, one line per run: held out where that was measured."""
    shared = [name for name in loss_names(runs) if sum(bool(_loss(run, name).points) for run in runs) > 1]
    charts = [
        line_chart([_loss(run, name) for run in runs], "step", name.removesuffix("/loss") + " loss") for name in shared
    ]
    return section("The runs' losses", f'<div class="charts">{"".join(charts)}</div>') if charts else ""


def _loss(run: Run, name: str) -> Series:
    held_out = run.series(HELD_OUT + name)
    return Series(run.name, held_out or run.series(name), held_out=bool(held_out))


def _table(names: Sequence[str], rows: Sequence[tuple[str, str, dict[str, Any]]]) -> str:
    cells = [
        (kind, [("name", label), *(("n", number(numbers[n]) if n in numbers else "") for n in names)])
        for kind, label, numbers in rows
    ]
    return table(["", *names], cells)


def _turned(names: Sequence[str], rows: Sequence[tuple[str, str, dict[str, Any]]]) -> str:
    heads = "".join(f"<th>{label}</th>" for _, label, _ in rows)
    body = "".join(
        f'<tr><td class="name">{metric_name(name)}</td>'
        + "".join(f'<td class="n">{number(numbers[name]) if name in numbers else ""}</td>' for _, _, numbers in rows)
        + "</tr>"
        for name in names
    )
    return f'<div class="scroll"><table><thead><tr><th></th>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def _classes(found: Sequence[tuple[Run, Record]]) -> str:
    """F1 of each class by itself, a column per result; the most frequent classes."""
    told = [(run, result) for run, result in found if result.get("classes")]
    if not told:
        return ""
    gold = {name: of["gold"] for _, result in told for name, of in result["classes"].items()}
    most = sorted(gold, key=lambda name: -gold[name])[:MAX_CLASSES]
    rows = [("gold", gold), *((_label(*each), {n: c["f1"] for n, c in each[1]["classes"].items()}) for each in told)]
    shown = _turned(most, [("", label, {name: of[name] for name in most if name in of}) for label, of in rows])
    few = f", the {MAX_CLASSES} most frequent of {len(gold)}" if len(gold) > MAX_CLASSES else ""
    return f"<details><summary>F1 by class{few}</summary>{shown}</details>"


def _kind(run: Run, result: Record) -> str:
    return "control" if run.control or result.get("control") else "result"


def _label(run: Run, result: Record) -> str:
    """The run's name; a control says whether the model was trained or only evaluated under it."""
    tags = []
    if run.control:
        tags.append(f"trained with {run.control}")
    if result.get("control"):
        tags.append(f"evaluated with {result['control']}")
    tags += [f"{name} {_identity(value)}" for name, value in (result.get("options") or {}).items()]
    return escape(run.name) + "".join(f' <span class="tag">{escape(tag)}</span>' for tag in tags)


def _baselines(found: Sequence[tuple[Run, Record]]) -> dict[str, dict[str, Any]]:
    """Baselines by name; one that runs share is shown once, others with the name of their run."""
    by_run: dict[str, dict[str, dict[str, Any]]] = {}
    for run, result in found:
        for name, numbers in (result.get("baselines") or {}).items():
            numbers = numbers if isinstance(numbers, dict) else {next(iter(result["numbers"])): numbers}
            by_run.setdefault(name, {})[run.name] = numbers
    shown: dict[str, dict[str, Any]] = {}
    for name, runs in by_run.items():
        first, *others = runs.values()
        shared = all(numbers == first for numbers in others)
        shown |= {name: first} if shared else {f"{name} ({run})": numbers for run, numbers in runs.items()}
    return shown


def _baseline(name: str) -> str:
    return f'{escape(name)} <span class="tag">baseline</span>'


def _sources(found: Sequence[tuple[Run, Record]]) -> str:
    """What was counted, and on which inputs."""
    lines = []
    for run, result in found:
        parts = [f"{number(value)} {escape(name)}" for name, value in (result.get("counts") or {}).items()]
        inputs = [f"{escape(name)} {escape(_identity(value))}" for name, value in (result.get("inputs") or {}).items()]
        if parts or inputs:
            lines.append(f"<li><b>{escape(run.name)}</b> {'; '.join([*parts, *inputs])}</li>")
    return (
        f'<details><summary>Counts and inputs</summary><ul class="inputs">{"".join(lines)}</ul></details>'
        if lines
        else ""
    )


def _identity(value: Any) -> str:
    """What went in, in one line: a corpus is its place, its size and the beginning of its checksum."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_identity(part)}" for name, part in value.items())
    if isinstance(value, list | tuple):
        more = f" and {len(value) - 3} more" if len(value) > 3 else ""
        return " ".join(_identity(part) for part in value[:3]) + more
    text = str(value)
    hexadecimal = len(text) >= 32 and set(text) <= set("0123456789abcdef")
    return text[:12] + "…" if hexadecimal else text
