"""What a report shows of visual question answering: questions with their images and the answers."""

from __future__ import annotations

from workbench.evaluation.examples import shown_image
from workbench.report.examples import example_panel, verdict
from workbench.report.html import escape
from workbench.report.run import Record, Run


def answered(run: Run) -> str | None:
    """Questions with their images. An example has image, question, prediction, answers, accuracy (0..1)."""
    return example_panel(run, "vqa", "Questions and predictions", _question)


def failed(run: Run) -> str | None:
    """The answers that are all wrong of which the run is surest. An example has also a confidence (0..1)."""
    return example_panel(run, "vqa", "Wrong, and surest of it", _question, "failures")


def _question(run: Run, example: Record) -> str:
    right = float(example.get("accuracy", 0.0)) >= 0.5
    answers = ", ".join(dict.fromkeys(str(answer) for answer in example.get("answers", []) if answer))
    sure = f" at {100 * float(example['confidence']):.0f} %" if "confidence" in example else ""
    return (
        f"{shown_image(run, example, example['question'])}<p>{escape(example['question'])}</p>"
        f'<p>{verdict(example["prediction"] + sure, right)} <span class="quiet">{escape(answers)}</span></p>'
    )
