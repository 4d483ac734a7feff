"""Published results of a system, compared with the run's."""

from __future__ import annotations

from workbench.report.html import escape, metric_name, number, section, table
from workbench.report.results import test_set_of
from workbench.report.run import Record, Run, listed
from workbench.runs.metric_tables import HELD_OUT

NOT_MEASURED = "reported, not measured here"
NOTE = "Published figures and their sources, in the unit of ours. They compare only where data and rules are the same."


def reported(run: Run) -> str | None:
    """The published results in the recipe with their sources, and the run's own results of the same metric."""
    figures = [figure for figure in listed(run.recipe, "reported") if isinstance(figure, dict)]
    rows = [("reported", _cells(run, figure)) for figure in figures]
    return section("Reported", table(["", "data", "reported", "here", "source"], rows), NOTE) if rows else None


def _cells(run: Run, figure: Record) -> list[tuple[str, str]]:
    metric = str(figure.get("metric", ""))
    ours = "<br>".join(f"{number(value)} {escape(place)}".strip() for value, place in measured(run, metric))
    source = ", ".join(str(figure[key]) for key in ("source", "note") if figure.get(key))
    return [
        ("name", metric_name(metric)),
        ("", escape(figure.get("data", ""))),
        ("n", number(figure.get("value"))),
        ("n", ours or f'<span class="tag">{NOT_MEASURED}</span>'),
        ("", escape(source)),
    ]


def measured(run: Run, metric: str) -> list[tuple[float, str]]:
    """The run's own values of a metric, with their test sets; results under a control are left out.

    `<task>/<number>` is a metric of an evaluation; other names are held-out metrics, with their last value.
    """
    task, _, name = metric.partition("/")
    found = [
        (result["numbers"][name], test_set_of(result))
        for result in run.evaluations
        if result["task"] == task and name in result["numbers"] and not result.get("control")
    ]
    held_out = run.series(HELD_OUT + metric)
    return found or [(value, "held out") for _, value in held_out[-1:]]
