"""What ranking the objects of facts is held against: chance, and the training set's most frequent objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from kg.evaluation.facts.reading import Facts
from workbench.evaluation.opening import Evaluated
from workbench.metrics.ranks import RankScores, rank_scores


def most_frequent(run: Evaluated, facts: Mapping[str, Facts]) -> dict[str, float] | None:
    """Ranking the candidates by how often the training sentences have them; None where these name no facts, or are not
    at hand."""
    metas = [sample.get("meta", {}) for sample in run.trained_on() or ()]
    counts = Counter((str(meta.get("relation")), str(meta.get("object"))) for meta in metas)
    if not any(relation in facts for relation, _ in counts):
        return None
    ranks, competing = [], []
    for relation, f in facts.items():
        own = f.rank_by([counts[relation, name] for name in f.ids])
        ranks += own[0]
        competing += own[1]
    return numbers_of(rank_scores(ranks, competing))


def numbers_of(scores: RankScores) -> dict[str, float]:
    """The scores of a result, by name."""
    flat = scores.as_dict()
    return {name: float(value) for name, value in flat.items() if name not in ("chance", "examples")}


def chance(competing: Sequence[int]) -> dict[str, float]:
    """What a random order of the candidates gives on average."""
    n = np.asarray(competing, float)
    harmonic = {int(k): float((1 / np.arange(1, int(k) + 1)).sum() / k) for k in set(competing)}
    return {
        "accuracy": float((1 / n).mean()),
        "mrr": float(np.mean([harmonic[k] for k in competing])),
        **{f"hits@{k}": float(np.minimum(k / n, 1).mean()) for k in (1, 3, 10)},
        "median_rank": float(np.median((n + 1) / 2)),
    }
