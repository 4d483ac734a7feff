"""The results of networks over their latency, as a figure. `workbench cost --figure`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import atomic
from workbench.evaluation.analysis.cost import NetworkCost

COLOUR = "#2b6cb0"


def draw_costs(found: Sequence[NetworkCost], path: Path) -> str:
    """Draw the first result that most networks have over the milliseconds of their first batch; returns its name.

    Raises:
        WorkbenchError: no network has a result.
    """
    from matplotlib.figure import Figure

    counts = [name for each in found for name in each.results]
    if not counts:
        raise WorkbenchError(
            "--figure: no network has a result to draw; measure them first: workbench evaluate TASK RUN CORPUS"
        )
    number = max(dict.fromkeys(counts), key=counts.count)
    drawn = [each for each in found if number in each.results]
    first = drawn[0].passes[0]
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.margins(x=0.25, y=0.15)
    for each in drawn:
        place = (each.passes[0].milliseconds, each.results[number])
        axes.plot(*place, marker="o", color=COLOUR)
        label = f"{each.place}\n{each.disk / 1e6:,.1f} MB"
        axes.annotate(label, place, xytext=(6, 4), textcoords="offset points", fontsize=8)
    axes.set(xlabel=f"milliseconds a batch ({first.batch} x {first.length} tokens)", ylabel=number)
    axes.grid(alpha=0.3)
    with atomic(path) as file:
        figure.savefig(file, format="svg", metadata={"Date": None})
    return number
