"""The score from which on a triple is held to be true: for each relation the one that decides known triples best.

Socher et al., "Reasoning With Neural Tensor Networks for Knowledge Base Completion" (NeurIPS 2013), section 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Thresholds:
    """By the relation's row; relations without any known triple have the threshold of all triples together."""

    of_relation: dict[int, float]
    of_all: float

    @classmethod
    def fitted(cls, scores: np.ndarray, relations: np.ndarray, true: np.ndarray) -> Thresholds:
        """Scores, relations' rows and whether they are true, of known triples: [triples] each."""
        rows = np.unique(relations).tolist()
        chosen = {row: best_threshold(scores[relations == row], true[relations == row]) for row in rows}
        return cls(chosen, best_threshold(scores, true))

    def decide(self, scores: np.ndarray, relations: np.ndarray) -> np.ndarray:
        """Which triples are true: [triples] bool."""
        return scores >= np.array([self.of_relation.get(row, self.of_all) for row in relations.tolist()])


def best_threshold(scores: np.ndarray, true: np.ndarray) -> float:
    """The threshold with the most right decisions, the lowest of several; half-way between two scores, or infinite
    where all triples are best held to be true, or false."""
    order = np.argsort(scores, kind="stable")
    ordered, right = scores[order].astype(float), true[order]
    below = np.concatenate([[0], np.cumsum(~right)])  # cut at k: the k lowest are false
    above = np.concatenate([np.cumsum(right[::-1])[::-1], [0]])
    edges = np.concatenate([[-np.inf], (ordered[1:] + ordered[:-1]) / 2, [np.inf]])
    between = np.concatenate([[True], ordered[1:] > ordered[:-1], [True]])
    return float(edges[np.where(between, below + above, -1).argmax()])
