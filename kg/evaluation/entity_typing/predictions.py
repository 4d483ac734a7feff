"""What a typing run predicts on a corpus, and what a linear probe on its entity vectors alone would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kg.evaluation.entity_typing.metric import Macro, Rule, predicted_types, typing_scores
from kg.evaluation.entity_typing.probe import Typed, fit_best
from kg.objectives.types import TypesHead
from kg.sequences.steps.entity_stream import EntityStream
from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError
from workbench.evaluation.opening import Evaluated
from workbench.evaluation.passes import all_records, forward_pass, sample_pass
from workbench.sequences.builders.mention import Mention
from workbench.sequences.sequence import Sample


@dataclass
class Predictions:
    """Samples with their `logits` and `gold` types [mentions, types]."""

    samples: list[Sample]
    logits: np.ndarray
    gold: np.ndarray


def inventory_of(run: Evaluated) -> list[str]:
    """The types that the run knows, in the order of its logits.

    Raises:
        WorkbenchError: its task has no inventory.
    """
    builder = run.task.builder
    if not isinstance(builder, Mention) or builder.types is None:
        raise WorkbenchError(f"{run.folder}: the typing task needs the builder `mention` with its inventory `types`")
    return list(builder.types)


def predict(run: Evaluated, corpus: Corpus, batch_size: int, limit: int | None) -> Predictions:
    """The logits of every mention of a corpus, or of the first `limit`."""
    head = run.head
    assert isinstance(head, TypesHead)
    samples, logits, gold = [], [], []
    passed = sample_pass([corpus], size=batch_size, unit=None, limit=limit)
    for forward in forward_pass(run.network, run.task.sequences, passed):
        with torch.inference_mode():
            logits.append(head.logits(run.network, forward.states, forward.batch).float().cpu().numpy())
        gold.append(np.stack([sequence.meta["labels"] for sequence in forward.sequences]) > 0)
        samples += forward.samples
    return Predictions(samples, np.concatenate(logits), np.concatenate(gold))


def probed(run: Evaluated, test: Predictions, rule: Rule, macro: Macro) -> dict[str, float] | None:
    """The scores of a probe that is fitted to the run's own training set; its vectors are those the model gets.

    None where the run has no entity stream, or a control took it away.
    """
    entity = next((step for step in run.task.steps if isinstance(step, EntityStream)), None)
    if entity is None or not entity.linked:
        return None
    names = {name: i for i, name in enumerate(inventory_of(run))}
    trained = [sample for place in run.task.spec.corpora for sample in all_records(Corpus.open(place))]
    gold = np.zeros((len(trained), len(names)), bool)
    for row, sample in zip(gold, trained, strict=True):
        row[[names[name] for name in sample.get("types", ()) if name in names]] = True
    train = _typed(run, entity, trained, gold)
    fitted = fit_best(train, rule)
    held = _typed(run, entity, test.samples, test.gold)
    return typing_scores(predicted_types(fitted.logits(held.vectors), rule), test.gold, macro).numbers()


def examples(found: Predictions, chosen: np.ndarray, names: list[str], count: int = 12) -> list[dict[str, Any]]:
    """The first mentions with their gold and their predicted types, as the panel shows them."""
    shown = []
    for sample, row in list(zip(found.samples, chosen, strict=True))[:count]:
        predicted = [names[i] for i in np.flatnonzero(row)]
        gold = [name for name in sample.get("types", ()) if name in names]
        shown.append({"text": sample["text"], "mention": sample["mention"], "types": gold, "predicted": predicted})
    return shown


@torch.inference_mode()
def _typed(run: Evaluated, entity: EntityStream, samples: list[Sample], gold: np.ndarray) -> Typed:
    """The vector of the entity that is linked to exactly the mention."""
    entities = [_mentioned(sample) for sample in samples]
    rows = torch.tensor([entity.rows.get(name, -1) + 1 for name in entities])
    device = next(run.network.parameters()).device
    vectors = run.network.embeddings["entity"]({"entity_ids": rows.to(device)}).float().cpu().numpy()
    return Typed(entities, vectors, gold)


def _mentioned(sample: Sample) -> str:
    """The id of the entity that is linked to the sample's mention; empty where there is none."""
    place = tuple(sample["mention"])
    return next((str(span[2]) for span in sample.get("spans", ()) if tuple(span[:2]) == place), "")
