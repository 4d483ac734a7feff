"""What a report shows of relation prediction: pairs of entities, with the relation that was held to be likeliest."""

from __future__ import annotations

from workbench.report.examples import example_panel, verdict
from workbench.report.html import escape, number
from workbench.report.run import Record, Run


def ranked(run: Run) -> str | None:
    """Triples. An example has head, relation, tail, prediction (a relation), rank."""
    return example_panel(run, "relation-prediction", "Pairs of entities and their relation", _triple)


def _triple(run: Run, example: Record) -> str:
    head, relation, tail = (escape(example[part]) for part in ("head", "relation", "tail"))
    said = verdict(example["prediction"], example["prediction"] == example["relation"])
    rank = f"the right relation is at place {number(example['rank'])}"
    return f'<p>{head} &rarr; {relation} &rarr; {tail}</p><p>{said}</p><p class="quiet">{rank}</p>'
