"""What a report shows of entity typing: mentions with their types."""

from __future__ import annotations

from workbench.report.examples import example_panel, marked, verdict
from workbench.report.html import escape
from workbench.report.run import Record, Run


def types(run: Run) -> str | None:
    """Mentions with their types. An example has text, mention [start, end), types, predicted."""
    return example_panel(run, "entity-typing", "Entities and their types", _typed)


def _typed(run: Run, example: Record) -> str:
    gold, found = list(example["types"]), list(example["predicted"])
    parts = [verdict(name, name in gold) for name in found]
    parts += [f'<span class="quiet">missing {escape(name)}</span>' for name in gold if name not in found]
    return f"<p>{marked(example['text'], example.get('mention'))}</p><p>{' '.join(parts) or 'no type'}</p>"
