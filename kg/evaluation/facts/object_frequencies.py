"""The baseline of fact retrieval: the most frequent objects of each relation."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from kg.evaluation.facts.cloze_corpus import ClozeFacts, listed_candidates
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.metrics.ranks import numbers_of, rank_scores

Counts = Mapping[str, Mapping[str, int]]
"""Relation -> object -> how often."""


def counts_in_training(run: EvaluatedRun) -> Counts:
    """How often the run's training sentences have an object; empty where these name no facts, or are not at hand."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for meta in (sample.get("meta", {}) for sample in run.trained_on() or ()):
        if {"relation", "object"} <= meta.keys():
            counts[str(meta["relation"])][str(meta["object"])] += 1
    return counts


def counts_in_graph(candidates: Path) -> Counts:
    """How often the graph has an object, as `prepare facts` notes it next to the candidates (`count`)."""
    listed = listed_candidates(candidates)
    return {relation: {str(c["id"]): int(c.get("count", 0)) for c in of} for relation, of in listed.items()}


def most_frequent(facts: Mapping[str, ClozeFacts], counts: Counts) -> dict[str, float] | None:
    """Ranking the candidates by how often their relation has them; None where that is not known of any."""
    if not any(any(counts.get(relation, {}).values()) for relation in facts):
        return None
    ranks, competing = [], []
    for relation, f in facts.items():
        own = f.rank_by(f.candidates.counts(counts.get(relation, {})))
        ranks += own[0]
        competing += own[1]
    return numbers_of(rank_scores(ranks, competing))
