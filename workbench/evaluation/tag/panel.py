"""What a report shows of tagging: texts with the chunks that were found, and those that were missed."""

from __future__ import annotations

from workbench.report.examples import example_panel, marked_all, verdict
from workbench.report.html import escape
from workbench.report.run import Record, Run


def tagged(run: Run) -> str | None:
    """Texts with their chunks. An example has text, predicted and gold [[start, end, name], ...]."""
    return example_panel(run, "tag", "Tagged texts", _text)


def _text(run: Run, example: Record) -> str:
    text = example["text"]
    found = [verdict(_told(text, each), each in example["gold"]) for each in example["predicted"]]
    missed = [each for each in example["gold"] if each not in example["predicted"]]
    found += [f'<span class="quiet">missing {escape(_told(text, each))}</span>' for each in missed]
    return f"<p>{marked_all(text, example['predicted'])}</p><p>{' '.join(found) or 'no chunk'}</p>"


def _told(text: str, chunk: list) -> str:
    start, end, name = chunk
    return f"{text[start:end]}: {name}"
