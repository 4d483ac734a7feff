"""The baseline of models of triples: how often the training triples have an entity at this end of the relation."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class FrequencyScores:
    """The score of an entity is the number of training triples of the relation that have it as their tail, or head; of
    a triple the product of both shares.

    Args:
        trained: [triples, 3], rows of heads, relations, tails.
        num_entities: of the graph.
    """

    def __init__(self, trained: np.ndarray, num_entities: int) -> None:
        self.num_entities = num_entities
        self.sorted = trained[np.argsort(trained[:, 1], kind="stable")]

    def tails(self, heads: Tensor, relations: Tensor) -> Tensor:
        """[triples, entities]."""
        return self._counts(relations, 2)

    def heads(self, relations: Tensor, tails: Tensor) -> Tensor:
        """[triples, entities]."""
        return self._counts(relations, 0)

    def triples(self, triples: Tensor) -> Tensor:
        """[triples, 3] -> [triples]."""
        scores = torch.zeros(len(triples))
        for relation in triples[:, 1].unique():
            mine = triples[:, 1] == relation
            heads, tails = (self._counts(relation[None], column)[0] for column in (0, 2))
            known = max(float(heads.sum()), 1.0)
            scores[mine] = heads[triples[mine, 0]] / known * (tails[triples[mine, 2]] / known)
        return scores

    def _counts(self, relations: Tensor, column: int) -> Tensor:
        different, places = relations.unique(return_inverse=True)
        rows = []
        for relation in different.tolist():
            lo, hi = np.searchsorted(self.sorted[:, 1], (relation, relation + 1))
            rows.append(np.bincount(self.sorted[lo:hi, column], minlength=self.num_entities))
        return torch.from_numpy(np.stack(rows).astype(np.float32))[places]
