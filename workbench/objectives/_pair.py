"""What the objectives over sentence pairs share: a label per sequence, and a two-way classifier on the pooled state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor, nn

from workbench.keyed import Draws
from workbench.objectives._vocabulary import TokenLoss
from workbench.options.bounds import Word
from workbench.sequences.sequence import Sequence
from workbench.tasks.forward import Seen
from workbench.tasks.objective import BatchTargets, Head, LossOutput, Objective

if TYPE_CHECKING:
    from workbench.models.network import Network


class PairObjective(Objective):
    """An objective whose `arrange` labels samples 0 or 1; a sequence without a label is not counted.

    Args:
        stream: whose pooled output is read.
    """

    def __init__(self, stream: Word = "text") -> None:
        self.stream = stream

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            label = sequence.labels.get(self.name, -100)
            sequence.targets[self.name] = {"labels": np.array([label], np.int64)}
        return {}

    def head(self, network: Network) -> Head:
        return PairHead(network, self.stream)


class PairHead(Head):
    """A linear layer on the pooled state of a stream."""

    def __init__(self, network: Network, stream: str = "text") -> None:
        super().__init__()
        self.stream = stream
        self.classifier = nn.Linear(network.sizes[stream], 2)
        self.loss = TokenLoss()

    def logits(self, network: Network, rows: Tensor) -> Tensor:
        """Pooled states [sequences, hidden_size] -> [sequences, 2]."""
        return self.classifier(rows)

    def forward(self, seen: Seen) -> LossOutput:
        pooled = seen.network.pool(seen.states, seen.batch, self.stream)
        return self.loss(self.logits(seen.network, pooled), seen.targets["labels"])
