"""What a report shows of facts: cloze sentences, with what the model put into the slot."""

from __future__ import annotations

from workbench.report.examples import example_panel, marked, verdict
from workbench.report.html import escape
from workbench.report.run import Record, Run


def filled(run: Run) -> str | None:
    """Cloze sentences. An example has text, mask [start, end), object, prediction, rank (of the object)."""
    return example_panel(run, "facts", "Facts filled in", _fact)


def _fact(run: Run, example: Record) -> str:
    rank = int(example["rank"])
    place = "" if rank == 1 else f' <span class="quiet">{escape(example["object"])} is at place {rank:,}</span>'
    answer = verdict(example["prediction"], rank == 1)
    return f"<p>{marked(example['text'], example.get('mask'))}</p><p>{answer}{place}</p>"
