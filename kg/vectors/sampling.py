"""pykeen's false triples, without the entities that no triple of training names.

A graph may have entities with their texts alone: those that an inductive split holds out. Their vectors are as they
were drawn; as false heads and tails they would be learnt, as what is wrong everywhere (`kg.graph.negatives`).
"""

from __future__ import annotations

from typing import Any

import torch
from pykeen.sampling import BasicNegativeSampler
from torch import Tensor

ENDS = [0, 2]


class StatedSampler(BasicNegativeSampler):
    """Another head or tail, uniformly among the entities of the triples; where these are all, pykeen's own draws."""

    def __init__(self, *, mapped_triples: Tensor, **kwargs: Any) -> None:
        super().__init__(mapped_triples=mapped_triples, **kwargs)
        self.stated = mapped_triples[:, ENDS].unique()
        self.all = len(self.stated) == self.num_entities
        self.places = torch.zeros(self.num_entities, dtype=torch.long)
        self.places[self.stated] = torch.arange(len(self.stated))
        self.num_entities = len(self.stated)

    def corrupt_batch(self, positive_batch: Tensor) -> Tensor:
        """[..., 3] -> [..., number, 3]: drawn by their places among the entities of the triples."""
        if self.all:
            return super().corrupt_batch(positive_batch)
        places = positive_batch.clone()
        places[..., ENDS] = self.places[positive_batch[..., ENDS]]
        false = super().corrupt_batch(places)
        false[..., ENDS] = self.stated[false[..., ENDS]]
        return false
