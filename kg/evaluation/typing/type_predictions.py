"""Predictions of a typing run on a corpus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.objective_task import measured
from workbench.evaluation.scoring.passes import sample_pass
from workbench.sequences.builders.mention import MentionBuilder
from workbench.sequences.sequence import Sample


@dataclass
class Predictions:
    """Samples with their `logits` and `gold` types [mentions, types].

    `outside` is how many gold types each has next to those of the inventory [mentions].
    """

    samples: list[Sample]
    logits: np.ndarray
    gold: np.ndarray
    outside: np.ndarray


def inventory_of(run: EvaluatedRun) -> list[str]:
    """The types that the run knows, in the order of its logits.

    Raises:
        WorkbenchError: its task has no inventory.
    """
    builder = run.task.builder
    if not isinstance(builder, MentionBuilder) or builder.types is None:
        raise WorkbenchError(f"{run.folder}: the typing task needs the builder `mention` with its inventory `types`")
    return list(builder.types)


def predict(run: EvaluatedRun, corpus: Corpus, batch_size: int, limit: int | None) -> Predictions:
    """The logits of every mention of a corpus, or of the first `limit`."""
    groups = list(sample_pass([corpus], size=batch_size, unit=None, limit=limit))
    made = measured(run, groups)
    known, samples = set(inventory_of(run)), [sample for group in groups for sample in group]
    outside = np.array([len(set(sample.get("types", ())) - known) for sample in samples])
    return Predictions(samples, made["logits"].numpy(), made["gold"].numpy(), outside)


def examples(found: Predictions, chosen: np.ndarray, names: list[str], count: int = 12) -> list[dict[str, Any]]:
    """The first mentions with their gold and their predicted types, as the panel shows them."""
    shown = []
    for sample, row in list(zip(found.samples, chosen, strict=True))[:count]:
        predicted = [names[i] for i in np.flatnonzero(row)]
        gold = [name for name in sample.get("types", ()) if name in names]
        shown.append({"text": sample["text"], "mention": sample["mention"], "types": gold, "predicted": predicted})
    return shown


def lines_of(found: Predictions, chosen: np.ndarray, names: list[str]) -> list[dict[str, Any]]:
    """A mention an item, with the score (logit) of each type."""
    return [
        {
            "key": str(sample["key"]),
            "gold": list(sample.get("types", ())),
            "prediction": [names[i] for i in np.flatnonzero(row)],
            "scores": dict(zip(names, logits, strict=True)),
        }
        for sample, row, logits in zip(found.samples, chosen, found.logits.tolist(), strict=True)
    ]
