"""What a report shows of relation classification: sentences with both mentions and their relation."""

from __future__ import annotations

from workbench.report.examples import example_panel, marked_all, verdict
from workbench.report.html import escape
from workbench.report.run import Record, Run


def related(run: Run) -> str | None:
    """Sentences with their relation. An example has text, marks [[start, end, name], ...], prediction, label."""
    return example_panel(run, "relations", "Two mentions and their relation", _sentence)


def _sentence(run: Run, example: Record) -> str:
    right = example["prediction"] == example["label"]
    gold = "" if right else f' <span class="quiet">{escape(example["label"])}</span>'
    text = marked_all(example["text"], example["marks"])
    return f"<p>{text}</p><p>{verdict(example['prediction'], right)}{gold}</p>"
