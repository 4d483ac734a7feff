"""Baselines that predict the relation of two mentions without the text around them: from their words, their entities,
or the vectors of their entities."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from kg.evaluation.entity_vectors import entity_transform, linked_at, vectors_of
from kg.evaluation.probe import ProbeExamples, fit_best
from kg.objectives.relations import ROLES
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.sequences.sequence import Sample


def mention_of(sample: Sample, role: str) -> tuple[str, str]:
    """The entity that is linked to exactly the mention (empty: none is), and the mention's text in small letters."""
    start, end, _ = next(mark for mark in sample["marks"] if mark[2] == role)
    return linked_at(sample, (start, end)), str(sample["text"][start:end]).casefold()


def words_of(sample: Sample, role: str) -> list[str]:
    """The words of a mention, in small letters."""
    return mention_of(sample, role)[1].split()


def entity_of(sample: Sample, role: str) -> list[str]:
    """The entity that is linked to exactly a mention; none where none is."""
    return [entity] if (entity := mention_of(sample, role)[0]) else []


def by_mentions(
    trained: Sequence[Sample],
    gold: np.ndarray,
    tested: Sequence[Sample],
    classes: int,
    features: Callable[[Sample, str], list[str]],
) -> np.ndarray | None:
    """The likeliest relation of each pair of mentions by naive Bayes, counts smoothed by one [tested].

        argmax_r  log n_r + sum over both mentions m, and the features f of m, of  log (n_r,f + 1) / (n_r,m + kinds_m)

    with n_r,m the count of all features of such mentions in relation r, and kinds_m the number of different features.

    Args:
        gold: the relations of the training set [trained].
        features: the features of a mention, `words_of` or `entity_of`.

    Returns:
        None if the training set has no features.
    """
    of_relation = np.bincount(gold, minlength=classes).astype(np.float64)
    scores = np.tile(np.log(np.maximum(of_relation, 1e-9)), (len(tested), 1))
    anything = False
    for role in ROLES:
        counts: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(classes))
        for sample, relation in zip(trained, gold.tolist(), strict=True):
            for each in features(sample, role):
                counts[each][relation] += 1
        whole, unseen = sum(counts.values(), np.zeros(classes)) + len(counts), np.zeros(classes)
        anything |= bool(counts)
        for row, sample in enumerate(tested):
            for each in features(sample, role) if counts else ():
                scores[row] += np.log((counts.get(each, unseen) + 1) / whole)
    return scores.argmax(1) if anything else None


def by_vectors(
    run: EvaluatedRun, trained: Sequence[Sample], gold: np.ndarray, tested: Sequence[Sample], classes: int
) -> np.ndarray | None:
    """Predictions of a linear probe on the vectors of both entities [tested]. None: the run has no entity vectors."""
    transform = entity_transform(run)
    if transform is None:
        return None

    def vectors(samples: Sequence[Sample]) -> np.ndarray:
        return np.concatenate(
            [vectors_of(run, transform, [mention_of(s, role)[0] for s in samples]) for role in ROLES], 1
        )

    heads = [mention_of(sample, "head")[0] for sample in trained]
    train = ProbeExamples(heads, vectors(trained), gold[:, None] == np.arange(classes))
    found: np.ndarray = fit_best(train, _accuracy, "softmax").logits(vectors(tested)).argmax(1)
    return found


def _accuracy(logits: np.ndarray, gold: np.ndarray) -> float:
    return float((logits.argmax(1) == gold.argmax(1)).mean())
