"""What a report shows of texts that were written: the text that was read, what was written of it, what was wanted."""

from __future__ import annotations

from workbench.report.examples import example_panel, verdict
from workbench.report.html import escape
from workbench.report.run import Record, Run


def written(run: Run) -> str | None:
    """Texts and what was made of them. An example has text, prediction, reference."""
    return example_panel(run, "generate", "Texts and what was written of them", _text)


def _text(run: Run, example: Record) -> str:
    prediction, reference = example["prediction"], example["reference"]
    right = prediction == reference
    gold = "" if right else f'<p class="quiet">{escape(reference)}</p>'
    return f"<p>{escape(example['text'])}</p><p>{verdict(prediction or 'nothing', right)}</p>{gold}"
