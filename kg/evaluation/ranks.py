"""Ranks of the right answer among candidates, and what is reported of them.

Ranks are realistic (pykeen's word): the mean of the optimistic rank, 1 + the number of better candidates, and the
pessimistic one, which counts the equal ones as better too. A model that gives all candidates one score gets the
middle rank and not the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class RankScores:
    """`accuracy` is the share of rank 1, `mrr` the mean of 1 / rank, `hits[k]` the share of ranks <= k.

    `chance` is the accuracy of drawing one of the candidates at random.
    """

    accuracy: float
    mrr: float
    hits: dict[int, float]
    median_rank: float
    chance: float
    examples: int

    def as_dict(self) -> dict[str, float | int]:
        """Flat, for a result file."""
        flat: dict[str, float | int] = {"accuracy": self.accuracy, "mrr": self.mrr}
        flat |= {f"hits@{k}": share for k, share in self.hits.items()}
        return flat | {"median_rank": self.median_rank, "chance": self.chance, "examples": self.examples}


def realistic_rank(scores: np.ndarray, gold: int, left_out: Sequence[int] = ()) -> tuple[float, int]:
    """The rank of candidate `gold` by scores [candidates] (greater is better), and the number of candidates ranked.

    `left_out` are candidates that are right too: they don't compete (the filtered setting).

    Raises:
        ValueError: the right candidate's score is not a number.
    """
    if np.isnan(scores[gold]):
        raise ValueError(f"the score of candidate {gold} is not a number; a rank needs finite scores")
    rivals = np.ones(len(scores), bool)
    rivals[[*left_out, gold]] = False
    better = np.count_nonzero(scores[rivals] > scores[gold])
    equal = np.count_nonzero(scores[rivals] == scores[gold])
    return 1 + better + equal / 2, int(rivals.sum()) + 1


def rank_scores(ranks: Sequence[float], competing: Sequence[int], hits: Sequence[int] = (1, 3, 10)) -> RankScores:
    """Summary of ranks; `competing` says for each among how many candidates it is.

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
        median_rank=float(np.median(values)),
        chance=float((1 / np.asarray(competing, float)).mean()),
        examples=len(values),
    )
