"""What a report shows of zero-shot classification: images with the class that was found."""

from __future__ import annotations

from workbench.evaluation.examples import shown_image
from workbench.report.examples import example_panel, verdict
from workbench.report.html import escape
from workbench.report.run import Record, Run


def classified(run: Run) -> str | None:
    """Images and their classes. An example has image, prediction, label."""
    return example_panel(run, "zero-shot", "Images and their classes by name", _image)


def _image(run: Run, example: Record) -> str:
    right = example["prediction"] == example["label"]
    gold = "" if right else f'<p class="quiet">{escape(example["label"])}</p>'
    return f"{shown_image(run, example, example['label'])}<p>{verdict(example['prediction'], right)}</p>{gold}"
