"""Link prediction: the rank of the right entity among all, for (h, r, ?) and (?, r, t).

Filtered (Bordes et al., NeurIPS 2013): other entities that make a known triple don't compete. Ranks are realistic,
the mean of optimistic and pessimistic (Berrendorf et al., arXiv 2002.06914), so that a model with one
score for all entities gets the middle rank. The same convention is pykeen's default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kg.graph.store import GraphStore
from kg.vectors.scores import TripleScores
from workbench.metrics.ranks import RankScores, rank_scores, realistic_rank, realistic_ranks


@dataclass(frozen=True)
class LinkPredictionRanks:
    """The result of `link_prediction`: ranks of heads, ranks of tails, and both together."""

    head: RankScores
    tail: RankScores
    both: RankScores

    def as_dict(self) -> dict[str, dict[str, float | int]]:
        """For a result file."""
        return {side: getattr(self, side).as_dict() for side in ("head", "tail", "both")}


@dataclass(frozen=True)
class QuestionRanks:
    """The rank of each triple's head and tail, and among how many entities it is: [triples] each."""

    head: np.ndarray
    tail: np.ndarray
    head_competing: np.ndarray
    tail_competing: np.ndarray

    def summary(self, chosen: np.ndarray | slice = slice(None)) -> LinkPredictionRanks:
        """The scores of all triples, or of those chosen.

        Raises:
            ValueError: there are none.
        """
        head, tail = self.head[chosen].tolist(), self.tail[chosen].tolist()
        of_head, of_tail = self.head_competing[chosen].tolist(), self.tail_competing[chosen].tolist()
        return LinkPredictionRanks(
            head=rank_scores(head, of_head),
            tail=rank_scores(tail, of_tail),
            both=rank_scores(head + tail, of_head + of_tail),
        )


class SampledTriples(NamedTuple):
    """So many candidates of each question, drawn with the seed from those that are wrong; for models that score one
    triple after the other. Ranks among a few are better than ranks among all."""

    candidates: int
    seed: int = 0


def link_prediction(
    scores: TripleScores, triples: np.ndarray, known: np.ndarray, num_relations: int, batch_size: int = 256
) -> LinkPredictionRanks:
    """The summary of `rank_triples`."""
    return rank_triples(scores, triples, known, num_relations, batch_size).summary()


def rank_triples(
    scores: TripleScores,
    triples: np.ndarray,
    known: np.ndarray,
    num_relations: int,
    batch_size: int = 256,
    *,
    sampled: SampledTriples | None = None,
    num_entities: int = 0,
    advance: Callable[[int], object] = lambda ranked: None,
) -> QuestionRanks:
    """Rank the tail and the head of each triple.

    Args:
        triples: [triples, 3] rows of head, relation, tail.
        known: [known, 3], true triples that filter: those trained on and the other held-out ones. `triples` filter
            each other too.
        num_relations: of the graph.
        batch_size: triples scored at a time; memory is batch_size x entities.
        sampled: rank among a few of the `num_entities` entities of the graph.
        advance: called with the number of newly ranked triples.

    Raises:
        NonFiniteScoresError: an entity's score is NaN or infinite.
    """
    triples = np.asarray(triples, np.int64)
    truth = np.concatenate([np.asarray(known, np.int64), triples])
    answers = {
        2: KnownAnswers(truth[:, 0] * num_relations + truth[:, 1], truth[:, 2]),
        0: KnownAnswers(truth[:, 2] * num_relations + truth[:, 1], truth[:, 0]),
    }
    generators = {asked: np.random.default_rng([sampled.seed if sampled else 0, asked]) for asked in answers}
    found: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {0: [], 2: []}
    for lo in range(0, len(triples), batch_size):
        part = triples[lo : lo + batch_size]
        for asked, those in answers.items():
            right = those.of(part[:, 2 - asked] * num_relations + part[:, 1])
            if sampled is None:
                ranked = realistic_ranks(_all(scores, part, asked).numpy(), part[:, asked], right)
            else:
                wrong = _drawn(generators[asked], num_entities, sampled.candidates, len(part), right)
                ranked = _ranked_among(scores, part, asked, wrong)
            found[asked].append(ranked)
        advance(len(part))
    head, tail = ([np.concatenate(parts) for parts in zip(*found[asked], strict=True)] for asked in (0, 2))
    return QuestionRanks(head[0], tail[0], head[1], tail[1])


def _all(scores: TripleScores, triples: np.ndarray, asked: int) -> Tensor:
    """[triples, entities]."""
    heads, relations, tails = (torch.from_numpy(np.ascontiguousarray(column)) for column in triples.T)
    return scores.tails(heads, relations) if asked == 2 else scores.heads(relations, tails)


def _drawn(
    rng: np.random.Generator, num_entities: int, wanted: int, questions: int, right: tuple[np.ndarray, np.ndarray]
) -> list[np.ndarray]:
    """For each question as many wrong entities, or all of them: each once, every one as likely."""
    drawn = []
    for question in range(questions):
        answers = right[1][right[0] == question]
        some = rng.choice(num_entities, min(num_entities, wanted + len(answers)), replace=False)
        drawn.append(some[~np.isin(some, answers)][:wanted])
    return drawn


def _ranked_among(
    scores: TripleScores, triples: np.ndarray, asked: int, wrong: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The ranks among the wrong entities alone, and among how many they are."""
    sizes = np.array([len(some) + 1 for some in wrong])
    pairs = np.repeat(triples, sizes, axis=0)
    pairs[:, asked] = np.concatenate([np.append(own, some) for own, some in zip(triples[:, asked], wrong, strict=True)])
    parts = np.split(scores.triples(torch.from_numpy(pairs)).numpy(), np.cumsum(sizes)[:-1])
    return np.array([realistic_rank(part, 0)[0] for part in parts]), sizes


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


class KnownAnswers:
    """The right answers of a question, rows of entities or relations; questions are numbers."""

    def __init__(self, questions: np.ndarray, answers: np.ndarray) -> None:
        order = np.argsort(questions, kind="stable")
        self.questions = questions[order]
        self.answers = answers[order]

    def of(self, questions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(row, answer) pairs, for rows of questions."""
        lo = np.searchsorted(self.questions, questions, side="left")
        count = np.searchsorted(self.questions, questions, side="right") - lo
        rows = np.repeat(np.arange(len(questions)), count)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        return rows, self.answers[lo[rows] + within]
