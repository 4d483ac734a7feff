"""What a report shows of link prediction: triples with the ranks of their heads and tails."""

from __future__ import annotations

from workbench.report.examples import example_panel
from workbench.report.html import escape, number
from workbench.report.run import Record, Run


def predicted(run: Run) -> str | None:
    """Triples. An example has head, relation, tail, head_rank, tail_rank."""
    return example_panel(run, "link-prediction", "Triples and the places of their ends", _triple)


def _triple(run: Run, example: Record) -> str:
    head, relation, tail = (escape(example[part]) for part in ("head", "relation", "tail"))
    ranks = f"head at place {number(example['head_rank'])}, tail at {number(example['tail_rank'])}"
    return f'<p>{head} &rarr; {relation} &rarr; {tail}</p><p class="quiet">{ranks}</p>'
