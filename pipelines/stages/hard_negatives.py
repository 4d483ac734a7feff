"""The stage that writes hard negatives, which a run has found, next to the right passage of a query."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pipelines.readers.reader import Drop
from workbench.sequences.sequence import Sample

FOUND = "negatives"


@dataclass(frozen=True)
class WriteNegatives:
    """Writes the right passage and the negatives as `choices`, and the number of the right one as `answer`. Links and
    other marks of the passage are removed.

    Args:
        found_by: what found them; goes to `meta.negatives`.
        negatives: those of each record, by its key.
    """

    found_by: dict[str, Any]
    negatives: dict[str, list[str]] = field(compare=False, repr=False)

    def __call__(self, sample: Sample) -> Sample | Drop:
        passage = passage_of(sample)
        if passage is None:
            return Drop("no passage")
        if "text" not in sample:
            return Drop("no text")
        kept = {name: value for name, value in sample.items() if not name.startswith(("second", "choice"))}
        meta = {**sample.get("meta", {}), FOUND: self.found_by}
        return {**kept, "choices": [passage, *self.negatives[str(sample["key"])]], "answer": 0, "meta": meta}


def passage_of(sample: Sample) -> str | None:
    """The right passage of a query: its `second` text, or the right one of its `choices`; None without either."""
    if "choices" in sample and "answer" in sample:
        return str(sample["choices"][sample["answer"]])
    return str(sample["second"]) if "second" in sample else None
