"""Baselines of entity typing: no type, always the most frequent type, and a linear probe on the entity vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np

from kg.evaluation.entity_vectors import entity_transform, linked_at, vectors_of
from kg.evaluation.probe import ProbeExamples, fit_best
from kg.evaluation.typing.type_predictions import Predictions, inventory_of
from kg.metrics.typing_scores import Rule, predicted_types, typing_scores
from kg.sequences.transforms.entity_stream import EntityStreamTransform
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.sequences.sequence import Sample

Score = Callable[[np.ndarray], dict[str, float]]


def baselines(
    run: EvaluatedRun, test: Predictions, score: Score, rule: Rule, probe: bool
) -> dict[str, dict[str, float]]:
    """Numbers by baseline; those that need the run's training set are left out, and said so, where it is not at hand.

    Args:
        score: predicted types [mentions, types] -> numbers against the test set's gold types.
        probe: whether one is fitted, where the run has an entity stream that no control removed.
    """
    found = {"no type": score(np.zeros_like(test.gold))}
    trained = run.trained_on()
    if trained is None:
        return found
    names = inventory_of(run)
    counts = Counter(name for sample in trained for name in sample.get("types", ()) if name in names)
    most = min(names, key=lambda name: (-counts[name], name))
    always = np.zeros_like(test.gold)
    always[:, names.index(most)] = True
    found[f"always {most}"] = score(always)
    entity = entity_transform(run)
    if probe and entity is not None:
        predicted = predicted_types(_probe_logits(run, entity, trained, test, rule), rule)
        found["linear probe on the entity vectors"] = score(predicted)
    return found


def _probe_logits(
    run: EvaluatedRun, entity: EntityStreamTransform, trained: list[Sample], test: Predictions, rule: Rule
) -> np.ndarray:
    """Predictions of a probe that is fitted to the run's own training set, on the vectors that the model reads."""
    names = {name: i for i, name in enumerate(inventory_of(run))}
    gold = np.zeros((len(trained), len(names)), bool)
    for row, sample in zip(gold, trained, strict=True):
        row[[names[name] for name in sample.get("types", ()) if name in names]] = True
    fitted = fit_best(_typed(run, entity, trained, gold), partial(_micro_f1, rule))
    return fitted.logits(_typed(run, entity, test.samples, test.gold).vectors)


def _micro_f1(rule: Rule, logits: np.ndarray, gold: np.ndarray) -> float:
    return typing_scores(predicted_types(logits, rule), gold).loose_micro.f1


def _typed(run: EvaluatedRun, entity: EntityStreamTransform, samples: list[Sample], gold: np.ndarray) -> ProbeExamples:
    """The vector of the entity that is linked to exactly the mention."""
    entities = [linked_at(sample, sample["mention"]) for sample in samples]
    return ProbeExamples(entities, vectors_of(run, entity, entities), gold)
