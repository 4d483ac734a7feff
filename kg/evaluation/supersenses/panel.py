"""What a report shows of supersenses: texts with what was predicted of their hidden words."""

from __future__ import annotations

from workbench.report.examples import example_panel, verdict
from workbench.report.html import escape
from workbench.report.run import Record, Run


def meant(run: Run) -> str | None:
    """Texts with supersenses. An example has text, predicted [name], allowed [[name, ...]] of its hidden words."""
    return example_panel(run, "supersenses", "Supersenses of hidden words", _text)


def _text(run: Run, example: Record) -> str:
    told = []
    for name, allowed in zip(example["predicted"], example["allowed"], strict=True):
        gold = "" if name in allowed else f' <span class="quiet">{escape(", ".join(allowed))}</span>'
        told.append(verdict(name, name in allowed) + gold)
    return f"<p>{escape(example['text'])}</p><p>{' '.join(told)}</p>"
