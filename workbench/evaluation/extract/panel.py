"""What a report shows of extracted answers: questions, answers, and where they stand."""

from __future__ import annotations

from workbench.metrics.answers import words_of
from workbench.report.examples import example_panel, marked, verdict
from workbench.report.html import escape
from workbench.report.run import Record, Run


def answered(run: Run) -> str | None:
    """Questions with their answers. An example has text, question, prediction ("" for none), answers."""
    return example_panel(run, "extract", "Questions and their answers in the text", _question)


def _question(run: Run, example: Record) -> str:
    text, prediction, answers = example["text"], example["prediction"], example["answers"]
    right = words_of(prediction) in [words_of(answer) for answer in answers or [""]]
    at = text.find(prediction) if prediction else -1
    gold = "" if right else f' <span class="quiet">{escape(", ".join(answers) or "no answer")}</span>'
    asked = f"<p>{escape(example['question'])} {verdict(prediction or 'no answer', right)}{gold}</p>"
    return f"{asked}<p>{marked(text, (at, at + len(prediction)) if at >= 0 else None)}</p>"
