"""What ranking the objects of facts is held against beside chance: the training set's most frequent objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kg.evaluation.facts.reading import Facts
from workbench.evaluation.opening import Evaluated
from workbench.metrics.ranks import numbers_of, rank_scores


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
