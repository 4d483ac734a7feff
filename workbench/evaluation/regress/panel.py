"""What a report shows of regression: texts with their number."""

from __future__ import annotations

from workbench.report.examples import example_panel
from workbench.report.html import escape, number
from workbench.report.run import Record, Run


def estimated(run: Run) -> str | None:
    """Texts with their number. An example has text, second (empty where there is none), prediction, number."""
    return example_panel(run, "regress", "Texts and their numbers", _text)


def _text(run: Run, example: Record) -> str:
    words = "".join(f"<p>{escape(part)}</p>" for part in (example["text"], example.get("second")) if part)
    gold = f'<span class="quiet">{number(example["number"])}</span>'
    return f"{words}<p>{number(example['prediction'])} {gold}</p>"
