"""What a report shows of visual question answering: questions with their images and the answers."""

from __future__ import annotations

from vision.evaluation.examples import shown_image
from workbench.report.examples import example_panel, verdict
from workbench.report.html import escape
from workbench.report.run import Record, Run


def answered(run: Run) -> str | None:
    """Questions with their images. An example has image, question, prediction, answers, accuracy (0..1)."""
    return example_panel(run, "vqa", "Questions and predictions", _question)


def _question(run: Run, example: Record) -> str:
    right = float(example.get("accuracy", 0.0)) >= 0.5
    answers = ", ".join(dict.fromkeys(map(str, example.get("answers", []))))
    return (
        f"{shown_image(run, example, example['question'])}<p>{escape(example['question'])}</p>"
        f'<p>{verdict(example["prediction"], right)} <span class="quiet">{escape(answers)}</span></p>'
    )
