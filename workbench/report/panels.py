"""The panels of the core, and the search for panels of other packages.

A panel is a function `panel(run) -> str | None`: HTML, or None if the run has no data for it. The panels of a
downstream task are in its module. Each result names them by import path in `panels`, so a user's task may have its own.
A recipe names panels of its run in the key `panels` (`workbench.components.trust` says which code may be run).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.components.error_context import ErrorContext
from workbench.components.trust import import_named
from workbench.core.errors import WorkbenchError
from workbench.report.chart import Series, line_chart
from workbench.report.html import escape, image, number, section, table
from workbench.report.published import reported
from workbench.report.run import Run, listed, loss_names
from workbench.runs.metric_tables import HELD_OUT

COUNTED = ("steps", "batch", "parameters")
Panel = Callable[[Run], str | None]

_RATES = {
    "tokens_per_second": "tokens per second",
    "samples_per_second": "samples per second",
    "memory_gib": "memory, GiB",
    "model_flops_utilisation": "model FLOPs utilisation",
    "data_wait_share": "share of the time spent waiting for data",
    "rank_forward_seconds_mean": "forwards of a step, s, mean of the ranks",
    "rank_forward_seconds_max": "forwards of a step, s, slowest rank",
    "rank_data_wait_seconds_max": "waiting for data in a step, s, rank that waits longest",
    "rank_memory_gib_max": "memory, GiB, rank with most",
}


def panels(run: Run) -> list[Panel]:
    """The panels for a run: the core's, then those that its recipe and its evaluations name, each once."""
    named = [*map(find_panel, panel_names(run))]
    return [about, reported, losses, throughput, *named, drawn_figures] if run.recipe else named


def panel_names(run: Run) -> list[str]:
    """The import paths of the panels that the run's recipe and its evaluations name."""
    named = (run.recipe, *run.evaluations)
    return list(dict.fromkeys(str(path) for record in named for path in listed(record, "panels")))


def find_panel(path: str) -> Panel:
    """The panel behind `package.module:function`.

    Raises:
        WorkbenchError: it does not exist, its code is not trusted, or it is not a function of one argument, `run`.
    """
    with ErrorContext(f"report panel {path!r}"):
        found: Panel = import_named("report panel", path)
    if not inspect.isfunction(found) or list(inspect.signature(found).parameters) != ["run"]:
        raise WorkbenchError(f"report panel {path!r} is no function panel(run) that returns HTML; name one that is")
    return found


def about(run: Run) -> str | None:
    """A summary of the run: recipe, paper, sizes, corpora."""
    recipe = run.recipe
    train = recipe.get("train", {})
    facts = {
        "recipe": recipe.get("name"),
        "paper": (recipe.get("paper") or {}).get("title"),
        "control": run.control,
        "steps": run.metrics[-1]["step"] if run.metrics else None,
        "batch": train.get("global_batch_size"),
        "optimiser": _with_options(train.get("optimizer"), "optimizer"),
        "learning rate": train.get("lr"),
        "schedule": _with_options(train.get("lr_schedule"), "lr_schedule"),
        "precision": train.get("precision"),
        "parameters": run.parameters(),
        "seed": recipe.get("seed"),
        "corpora": ", ".join(
            dict.fromkeys(str(c) for task in recipe.get("tasks", {}).values() for c in task.get("corpora", {}))
        ),
        "time": _duration(run),
    }
    shown = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{number(value) if name in COUNTED else escape(value)}</dd></div>"
        for name, value in facts.items()
        if value not in (None, "")
    )
    words = f"<p>{escape(recipe['description'])}</p>" if recipe.get("description") else ""
    return f'<section class="panel about">{words}<dl>{shown}</dl>{_hyperparameters(train)}</section>'


def _with_options(stated: Any, kind: str) -> str | None:
    """A component of the training loop with its options: `adamw (weight_decay 0.01)`."""
    if not isinstance(stated, dict):
        return None if stated is None else str(stated)
    options = ", ".join(f"{name} {value}" for name, value in stated.items() if name != kind)
    return f"{stated.get(kind, 'default')}{f' ({options})' if options else ''}"


def _hyperparameters(train: Any) -> str:
    """All keys of the training loop, in a folded section."""
    if not isinstance(train, dict) or not train:
        return ""
    rows = [("", [("name", escape(name)), ("", escape(_with_options(value, name)))]) for name, value in train.items()]
    return f"<details><summary>Hyperparameters</summary>{table(['', 'value'], rows)}</details>"


def losses(run: Run) -> str | None:
    """A curve per objective, the held-out loss next to it."""
    charts = [
        line_chart(
            [
                Series(" on ".join(["training", *_names(run.corpora)]), run.series(name)),
                Series(" on ".join(["held out", *_names(run.held_out)]), run.series(HELD_OUT + name), held_out=True),
            ],
            "step",
            name.removesuffix("/loss") + " loss",
        )
        for name in loss_names([run])
    ]
    drawn = "".join(charts)
    return section("Loss per objective", f'<div class="charts">{drawn}</div>') if drawn else None


def _names(places: list[str]) -> list[str]:
    """The corpora in one name, if any."""
    return [", ".join(Path(place).name for place in places)] if places else []


def throughput(run: Run) -> str | None:
    """Rates over the run, and their medians."""
    charts, rows = [], []
    for name, label in _RATES.items():
        points = run.series(name)
        if not points:
            continue
        values = sorted(value for _, value in points)
        rows.append(("", [("", escape(label)), ("n", number(values[len(values) // 2])), ("n", number(values[-1]))]))
        if name.endswith("_per_second"):
            charts.append(line_chart([Series(label, points)], "step", label, from_zero=True))
    if not rows:
        return None
    body = table(["", "median", "highest"], rows)
    return section("Throughput", f'<div class="charts">{"".join(charts)}</div>{body}')


def drawn_figures(run: Run) -> str | None:
    """The figures that evaluations drew: attention, neighbourhoods."""
    figures = [
        f'<figure class="figure">{image(p.path.read_bytes(), p.title, str(p.path))}'
        f"<figcaption><b>{escape(p.title)}</b> {escape(p.caption)}</figcaption></figure>"
        for p in run.figures
    ]
    return section("Figures", f'<div class="figures">{"".join(figures)}</div>') if figures else None


def _duration(run: Run) -> str | None:
    seconds = [line["seconds"] for line in run.metrics if "seconds" in line]
    if not seconds:
        return None
    total = round(seconds[-1])
    hours, rest = divmod(total, 3600)
    return f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s"
