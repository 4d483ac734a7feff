"""What ranking the objects of facts is held against beside chance: the most frequent objects of their relation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from kg.evaluation.facts.reading import Facts, listed_candidates
from workbench.evaluation.opening import Evaluated
from workbench.metrics.ranks import numbers_of, rank_scores

Counts = Mapping[tuple[str, str], int]
"""(relation, object) -> how often."""


def counts_in_training(run: Evaluated) -> Counts:
    """How often the run's training sentences have an object; empty where these name no facts, or are not at hand."""
    metas = [sample.get("meta", {}) for sample in run.trained_on() or ()]
    return Counter((str(m["relation"]), str(m["object"])) for m in metas if {"relation", "object"} <= m.keys())


def counts_in_graph(candidates: Path) -> Counts:
    """How often the graph has an object, as `prepare facts` notes it beside the candidates (`count`)."""
    listed = listed_candidates(candidates)
    return {(relation, str(c["id"])): int(c.get("count", 0)) for relation, of in listed.items() for c in of}


def most_frequent(facts: Mapping[str, Facts], counts: Counts) -> dict[str, float] | None:
    """Ranking the candidates by how often their relation has them; None where that is not known of any."""
    if not any(number and relation in facts for (relation, _), number in counts.items()):
        return None
    ranks, competing = [], []
    for relation, f in facts.items():
        own = f.rank_by([counts.get((relation, name), 0) for name in f.ids])
        ranks += own[0]
        competing += own[1]
    return numbers_of(rank_scores(ranks, competing))
