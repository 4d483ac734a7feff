"""What a report shows of triple classification: triples, with what they were held to be."""

from __future__ import annotations

from workbench.report.examples import example_panel, verdict
from workbench.report.html import escape
from workbench.report.run import Record, Run


def decided(run: Run) -> str | None:
    """Triples. An example has head, relation, tail, prediction, label (both whether it is true)."""
    return example_panel(run, "triple-classification", "True and false triples", _triple)


def _triple(run: Run, example: Record) -> str:
    head, relation, tail = (escape(example[part]) for part in ("head", "relation", "tail"))
    said = verdict("true" if example["prediction"] else "false", example["prediction"] == example["label"])
    return f"<p>{head} &rarr; {relation} &rarr; {tail}</p><p>{said}</p>"
