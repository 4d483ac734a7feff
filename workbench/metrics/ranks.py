"""Ranks of the right answer among candidates, and the scores of these ranks.

Ranks are realistic (pykeen's word): the mean of the optimistic rank, 1 + the number of better candidates, and the
pessimistic one, which counts the equal ones as better too. A model with one score for all candidates gets the middle
rank and not the first.

Scores that differ by no more than float rounding are equal (`rounding`): the other scores of a batch, and the
processor, change the last bits of a score and must not change a rank. So near scores share their rank: TransE on
CoDEx-S has the MRR .097710, and .097721 by a comparison of all bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import WorkbenchError
from workbench.metrics.tallies import Tally

ROUNDING = 1e-5
"""Relative to the typical magnitude of a query's scores; a forward pass in float32 differs by 1e-7 to 2e-6 of it."""


class NonFiniteScoresError(WorkbenchError):
    """Scores that are NaN or infinite, and so have no order."""


@dataclass(frozen=True)
class RankScores:
    """`accuracy` is the share of rank 1, `mrr` the mean of 1 / rank, `hits[k]` the share of ranks <= k.

    `chance` is the accuracy of drawing one of the candidates at random.
    """

    accuracy: float
    mrr: float
    hits: dict[int, float]
    mean_rank: float
    median_rank: float
    chance: float
    examples: int

    def as_dict(self) -> dict[str, float | int]:
        """Flat, for a result file."""
        flat: dict[str, float | int] = {"accuracy": self.accuracy, "mrr": self.mrr}
        flat |= {f"hits@{k}": share for k, share in self.hits.items()}
        flat |= {"mean_rank": self.mean_rank, "median_rank": self.median_rank}
        return flat | {"chance": self.chance, "examples": self.examples}


def rounding(scores: Tensor) -> Tensor:
    """The greatest difference of two equal scores of a query: scores [queries, candidates] -> [queries, 1].

    The typical magnitude is the median one of the finite scores, so that neither a candidate that was pushed to -1e9
    nor one at -inf makes all others equal.
    """
    magnitude = scores.abs().masked_fill(~scores.isfinite(), torch.nan).nanmedian(dim=1, keepdim=True).values
    return ROUNDING * magnitude.nan_to_num(0.0)


def count_rivals(
    scores: Tensor, right: Tensor, rivals: Tensor, tolerance: Tensor | float | None = None
) -> tuple[Tensor, Tensor]:
    """The numbers of rivals with a better and with an equal score: [queries] int64 each.

    Args:
        scores: [queries, candidates], greater is better.
        right: [queries, 1], the score of the right answer.
        rivals: [queries, candidates], True where a candidate competes.
        tolerance: the difference of equal scores; by default `rounding`.
    """
    allowed = rounding(scores) if tolerance is None else tolerance
    equal = ((scores - right).abs() <= allowed) | (scores == right)  # infinite scores have no difference
    return ((scores > right) & ~equal & rivals).sum(1), (equal & rivals).sum(1)


def realistic_ranks(
    scores: np.ndarray, gold: np.ndarray, left_out: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The ranks [queries] of the candidates `gold` [queries], and the numbers of their candidates.

    Args:
        scores: [queries, candidates], greater is better.
        left_out: (query, candidate) pairs that are right too: they don't compete (the filtered setting).

    Raises:
        NonFiniteScoresError: a competing candidate's score is NaN or +inf; one of -inf is worse than all others.
    """
    rows = np.arange(len(gold))
    right = scores[rows, gold][:, None]
    rivals = np.ones(scores.shape, bool)
    rivals[left_out] = False
    rivals[rows, gold] = True
    odd = int(((np.isnan(scores) | np.isposinf(scores)) & rivals).any(1).sum())
    if odd:
        raise NonFiniteScoresError(f"{odd:,} of {len(gold):,} items have candidates whose scores are NaN or infinite")
    rivals[rows, gold] = False
    better, equal = count_rivals(torch.from_numpy(scores), torch.from_numpy(right), torch.from_numpy(rivals))
    return 1 + better.numpy() + equal.numpy() / 2, rivals.sum(axis=1) + 1


def realistic_rank(scores: np.ndarray, gold: int, left_out: Sequence[int] = ()) -> tuple[float, int]:
    """`realistic_ranks` of one query: scores [candidates]."""
    others = np.asarray(left_out, np.int64)
    ranks, competing = realistic_ranks(scores[None], np.array([gold]), (np.zeros_like(others), others))
    return float(ranks[0]), int(competing[0])


def rank_scores(ranks: Sequence[float], competing: Sequence[int], hits: Sequence[int] = (1, 3, 10)) -> RankScores:
    """Summary of ranks; `competing` has for each rank the number of its candidates.

    Raises:
        ValueError: there are no ranks.
    """
    if not ranks:
        raise ValueError("there are no ranks to summarise: the list of examples is empty")
    values = np.asarray(ranks, float)
    return RankScores(
        accuracy=float((values == 1).mean()),
        mrr=float((1 / values).mean()),
        hits={k: float((values <= k).mean()) for k in hits},
        mean_rank=float(values.mean()),
        median_rank=float(np.median(values)),
        chance=float((1 / np.asarray(competing, float)).mean()),
        examples=len(values),
    )


def numbers_of(scores: RankScores) -> dict[str, float]:
    """The scores of a result, by name."""
    return {name: float(value) for name, value in scores.as_dict().items() if name not in ("chance", "examples")}


def rank_tallies(ranks: Sequence[float], hits: Sequence[int] = (1, 3, 10)) -> dict[str, Tally]:
    """The tallies of the numbers of `numbers_of`, by rank."""
    values = np.asarray(ranks, float)
    mean = Tally.mean(values)
    return {
        "accuracy": Tally.share(values == 1),
        "mrr": Tally.mean(1 / values),
        **{f"hits@{k}": Tally.share(values <= k) for k in hits},
        "mean_rank": mean,
        "median_rank": Tally("median", mean.rows),
    }


def chance(competing: Sequence[int]) -> dict[str, float]:
    """The expected scores of a random order of the candidates, by the names of `numbers_of`; `competing` as there."""
    n = np.asarray(competing, float)
    harmonic = {int(k): float((1 / np.arange(1, int(k) + 1)).sum() / k) for k in set(competing)}
    return {
        "accuracy": float((1 / n).mean()),
        "mrr": float(np.mean([harmonic[k] for k in competing])),
        **{f"hits@{k}": float(np.minimum(k / n, 1).mean()) for k in (1, 3, 10)},
        "mean_rank": float(((n + 1) / 2).mean()),
        "median_rank": float(np.median((n + 1) / 2)),
    }
