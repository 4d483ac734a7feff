"""The rank of the right relation of two entities among all, and what the graph alone says.

Filtered: other relations that are known to hold between the two don't compete. Ranks are realistic
(`workbench.metrics.ranks`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kg.vectors.triple_ranks import KnownAnswers
from workbench.metrics.ranks import realistic_ranks

RelationScores = Callable[[np.ndarray], np.ndarray]
"""Pairs of entities [pairs, 2], as rows of a graph -> how well each relation fits [pairs, relations]."""


class RankedRelations(NamedTuple):
    """Ranks of the triples' relations, numbers of ranked relations, and rows of the best ones: [triples] each."""

    ranks: np.ndarray
    competing: np.ndarray
    predicted: np.ndarray


def rank_relations(
    scores: RelationScores,
    triples: np.ndarray,
    known: np.ndarray,
    num_entities: int,
    batch_size: int,
    advance: Callable[[int], object] = lambda ranked: None,
) -> RankedRelations:
    """Rank the relation of each triple.

    Args:
        triples: [triples, 3] rows of head, relation, tail.
        known: [known, 3], true triples that filter, those of `triples` among them.
        batch_size: triples ranked at a time.
        advance: called with the number of newly ranked triples.

    Raises:
        NonFiniteScoresError: the score of a relation is NaN or infinite.
    """
    right = KnownAnswers(known[:, 0].astype(np.int64) * num_entities + known[:, 2], known[:, 1])
    found = []
    for lo in range(0, len(triples), batch_size):
        part = triples[lo : lo + batch_size]
        of_part, gold = scores(part[:, [0, 2]]), part[:, 1]
        others = right.of(part[:, 0] * num_entities + part[:, 2])
        ranks, competing = realistic_ranks(of_part, gold, others)
        asked = np.array(of_part)
        asked[others] = -np.inf
        rows = np.arange(len(part))
        asked[rows, gold] = of_part[rows, gold]
        found.append(RankedRelations(ranks, competing, asked.argmax(1)))
        advance(len(part))
    return RankedRelations(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


class FrequentRelations:
    """The baseline of any pair: how many of the graph's triples have the relation.

    Args:
        trained: [triples, 3].
        num_relations: of the graph.
    """

    def __init__(self, trained: np.ndarray, num_relations: int) -> None:
        self.counts = np.bincount(trained[:, 1], minlength=num_relations).astype(np.float64)

    def __call__(self, pairs: np.ndarray) -> np.ndarray:
        return np.tile(self.counts, (len(pairs), 1))


class RelationsOfEnds:
    """Naive Bayes on which relations have this head, and which this tail, counts smoothed by one:

        log n_r + log (n_head,r + 1) / (n_r + entities) + log (n_r,tail + 1) / (n_r + entities)

    Args:
        trained: [triples, 3].
        num_relations, num_entities: of the graph.
    """

    def __init__(self, trained: np.ndarray, num_relations: int, num_entities: int) -> None:
        self.of_relation = np.bincount(trained[:, 1], minlength=num_relations).astype(np.float64)
        self.num_relations, self.num_entities = num_relations, num_entities
        ends = trained.astype(np.int64)
        self.ends = [np.unique(ends[:, end] * num_relations + ends[:, 1], return_counts=True) for end in (0, 2)]

    def __call__(self, pairs: np.ndarray) -> np.ndarray:
        scores = np.log(np.maximum(self.of_relation, 1e-9))
        for column, (keys, counts) in enumerate(self.ends):
            asked = pairs[:, column, None].astype(np.int64) * self.num_relations + np.arange(self.num_relations)
            places = np.searchsorted(keys, asked).clip(max=len(keys) - 1)
            counted = np.where(keys[places] == asked, counts[places], 0)
            scores = scores + np.log((counted + 1) / (self.of_relation + self.num_entities))
        return scores
