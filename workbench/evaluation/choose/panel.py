"""What a report shows of multiple choice: texts with their choices."""

from __future__ import annotations

from workbench.report.examples import example_panel, verdict
from workbench.report.html import escape
from workbench.report.run import Record, Run


def chosen(run: Run) -> str | None:
    """Texts with their choices. An example has text, question ("" for none), choices, prediction and answer."""
    return example_panel(run, "choose", "Texts and what was chosen", _text)


def _text(run: Run, example: Record) -> str:
    prediction, answer = example["prediction"], example["answer"]
    words = "".join(f"<p>{escape(part)}</p>" for part in (example["text"], example["question"]) if part)
    found = [verdict(example["choices"][prediction], prediction == answer)]
    found += [
        f'<span class="quiet">{"right: " if number == answer else ""}{escape(choice)}</span>'
        for number, choice in enumerate(example["choices"])
        if number != prediction
    ]
    return f"{words}<p>{' '.join(found)}</p>"
