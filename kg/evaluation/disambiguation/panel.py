"""What a report shows of entity disambiguation: texts, and of how many mentions the entity is right."""

from __future__ import annotations

from workbench.report.examples import example_panel, verdict
from workbench.report.html import escape
from workbench.report.run import Record, Run


def linked(run: Run) -> str | None:
    """Texts. An example has text, mentions (those whose entity is known) and right, how many of them."""
    return example_panel(run, "disambiguation", "Mentions and their entities", _text)


def _text(run: Run, example: Record) -> str:
    right, mentions = int(example["right"]), int(example["mentions"])
    return f"<p>{escape(example['text'])}</p><p>{verdict(f'{right} of {mentions} right', right == mentions)}</p>"
