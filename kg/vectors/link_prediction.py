"""Link prediction: the rank of the right entity among all, for (h, r, ?) and (?, r, t).

Filtered (Bordes et al., NeurIPS 2013): other entities that make a known triple don't compete. Ranks are realistic,
the mean of optimistic and pessimistic (Berrendorf et al., arXiv 2002.06914), so that a model which gives all
entities one score gets the middle rank. The same convention is pykeen's default.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from kg.graph.store import GraphStore
from workbench.metrics.ranks import RankScores, rank_scores, realistic_ranks


class Scores(Protocol):
    """A model of triples: scores of all entities, greater is better."""

    def tails(self, heads: Tensor, relations: Tensor) -> Tensor:
        """[triples, entities]: how well each entity completes (h, r, ?)."""

    def heads(self, relations: Tensor, tails: Tensor) -> Tensor:
        """[triples, entities]: how well each entity completes (?, r, t)."""


class TransE:
    """score(h, r, t) = -|h + r - t|, by vectors alone; `norm` is 1 (pykeen's) or 2."""

    def __init__(self, entity: Tensor, relation: Tensor, norm: int = 1) -> None:
        self.entity = entity
        self.relation = relation
        self.norm = norm

    def tails(self, heads: Tensor, relations: Tensor) -> Tensor:
        """[triples, entities]."""
        return -torch.cdist(self.entity[heads] + self.relation[relations], self.entity, p=self.norm)

    def heads(self, relations: Tensor, tails: Tensor) -> Tensor:
        """[triples, entities]."""
        return -torch.cdist(self.entity[tails] - self.relation[relations], self.entity, p=self.norm)


@dataclass(frozen=True)
class LinkPrediction:
    """What `link_prediction` found: when the head was asked for, when the tail was, and both together."""

    head: RankScores
    tail: RankScores
    both: RankScores

    def as_dict(self) -> dict[str, dict[str, float | int]]:
        """For a result file."""
        return {side: getattr(self, side).as_dict() for side in ("head", "tail", "both")}


def link_prediction(
    scores: Scores, triples: np.ndarray, known: np.ndarray, num_relations: int, batch_size: int = 256
) -> LinkPrediction:
    """Rank the tail and the head of each triple.

    Args:
        triples: [triples, 3] rows of head, relation, tail.
        known: [known, 3], true triples that filter: those trained on and the other held-out ones. `triples` filter
            each other too.
        num_relations: of the graph.
        batch_size: triples scored at a time; memory is batch_size x entities.

    Raises:
        ValueError: there are no triples, or a right entity's score is not a number.
    """
    triples = np.asarray(triples, np.int64)
    truth = np.concatenate([np.asarray(known, np.int64), triples])
    tails_of = _Answers(truth[:, 0] * num_relations + truth[:, 1], truth[:, 2])
    heads_of = _Answers(truth[:, 2] * num_relations + truth[:, 1], truth[:, 0])
    ranks: dict[str, list[float]] = {"head": [], "tail": []}
    competing: dict[str, list[int]] = {"head": [], "tail": []}
    for lo in range(0, len(triples), batch_size):
        h, r, t = triples[lo : lo + batch_size].T
        heads, relations, tails = (torch.from_numpy(np.ascontiguousarray(column)) for column in (h, r, t))
        sides = (
            ("tail", scores.tails(heads, relations), t, tails_of.of(h * num_relations + r)),
            ("head", scores.heads(relations, tails), h, heads_of.of(t * num_relations + r)),
        )
        for side, found, gold, right in sides:
            rank, count = realistic_ranks(found.numpy(), gold, right)
            ranks[side] += rank.tolist()
            competing[side] += count.tolist()
    return LinkPrediction(
        head=rank_scores(ranks["head"], competing["head"]),
        tail=rank_scores(ranks["tail"], competing["tail"]),
        both=rank_scores(ranks["head"] + ranks["tail"], competing["head"] + competing["tail"]),
    )


def rows_of(store: GraphStore, triples: Iterable[tuple[str, str, str]]) -> tuple[np.ndarray, int]:
    """Triples of ids as rows of a graph's tables [triples, 3] int64, and how many name something it does not hold."""
    rows, left_out = [], 0
    for head, relation, tail in triples:
        row = (store.ids.find(head), store.relation_ids.find(relation), store.ids.find(tail))
        if min(row) < 0:
            left_out += 1
        else:
            rows.append(row)
    return np.asarray(rows, np.int64).reshape(-1, 3), left_out


class _Answers:
    """The right entities of a question; questions are numbers."""

    def __init__(self, questions: np.ndarray, entities: np.ndarray) -> None:
        order = np.argsort(questions, kind="stable")
        self.questions = questions[order]
        self.entities = entities[order]

    def of(self, questions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(row, entity) pairs, for rows of questions."""
        lo = np.searchsorted(self.questions, questions, side="left")
        count = np.searchsorted(self.questions, questions, side="right") - lo
        rows = np.repeat(np.arange(len(questions)), count)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        return rows, self.entities[lo[rows] + within]
