"""What a report shows of captions: the image, what was written, what people wrote."""

from __future__ import annotations

from workbench.evaluation.examples import shown_image
from workbench.report.examples import example_panel
from workbench.report.html import escape
from workbench.report.run import Record, Run


def written(run: Run) -> str | None:
    """Images and what was said of them. An example has image, prediction, references."""
    return example_panel(run, "caption", "Images and what was said of them", _image)


def _image(run: Run, example: Record) -> str:
    people = "".join(f'<p class="quiet">{escape(text)}</p>' for text in example["references"])
    said = example["prediction"] or "nothing"
    return f"{shown_image(run, example, said)}<p><b>{escape(said)}</b></p>{people}"
