"""What a report shows of classification: texts with their class."""

from __future__ import annotations

from workbench.report.examples import example_panel, verdict
from workbench.report.html import escape
from workbench.report.run import Record, Run


def classified(run: Run) -> str | None:
    """Texts with their class. An example has text, second (empty where there is none), prediction, label."""
    return example_panel(run, "classify", "Texts and their classes", _text)


def _text(run: Run, example: Record) -> str:
    right = example["prediction"] == example["label"]
    gold = "" if right else f' <span class="quiet">{escape(example["label"])}</span>'
    words = "".join(f"<p>{escape(part)}</p>" for part in (example["text"], example.get("second")) if part)
    return f"{words}<p>{verdict(example['prediction'], right)}{gold}</p>"
