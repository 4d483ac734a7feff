"""The perplexity of a causal language model, exp(loss), over the steps."""

from __future__ import annotations

import math

from workbench.report.chart import Series, line_chart
from workbench.report.html import number, section
from workbench.report.run import HELD_OUT, Run


def perplexity(run: Run) -> str | None:
    """The perplexity over the steps, in training and held out; None for a run without the objective `clm`."""
    curves = {
        name: [(step, math.exp(loss)) for step, loss in run.series(metric) if loss < 20]
        for name, metric in (("training", "clm/loss"), ("held out", f"{HELD_OUT}clm/loss"))
    }
    if not curves["training"]:
        return None
    drawn = [Series(name, points, held_out=name == "held out") for name, points in curves.items()]
    last = number((curves["held out"] or curves["training"])[-1][1])
    return section("Perplexity", line_chart(drawn, "step", "perplexity"), f"At the end: {last}.")
