"""The base of objectives over sentence pairs: a label per sequence, a classifier on the pooled state, and the choice of
the segment that a sample gets in place of its own."""

from __future__ import annotations

from collections.abc import Sequence as Listing
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor, nn

from workbench.core.keyed import Draws
from workbench.core.options.bounds import Word
from workbench.objectives._token_head import TokenLoss
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput, Objective
from workbench.sequences.sequence import Sample, Sequence

if TYPE_CHECKING:
    from workbench.models.network import Network


class PairObjective(Objective):
    """An objective whose `arrange` labels samples with one of `classes`; a sequence without a label is not counted.

    Args:
        stream: the stream whose pooled output is read.
    """

    classes = 2

    def __init__(self, stream: Word = "text") -> None:
        self.stream = stream

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            label = sequence.labels.get(self.name, -100)
            sequence.targets[self.name] = {"labels": np.array([label], np.int64)}
        return {}

    def head(self, network: Network) -> Head:
        return PairHead(network, self.stream, self.classes)


class PairHead(Head):
    """A linear layer on the pooled state of a stream."""

    def __init__(self, network: Network, stream: str = "text", classes: int = 2) -> None:
        super().__init__()
        self.stream = stream
        self.classifier = nn.Linear(network.pooled_size(stream), classes)
        self.loss = TokenLoss()

    def logits(self, network: Network, rows: Tensor) -> Tensor:
        """Pooled states [sequences, pooled_size] -> [sequences, classes]."""
        return self.classifier(rows)

    def forward(self, inputs: HeadInputs) -> LossOutput:
        pooled = inputs.network.pool(inputs.states, inputs.batch, self.stream)
        return self.loss(self.logits(inputs.network, pooled), inputs.targets["labels"])


def donors(
    samples: Listing[Sample], chosen: list[int], usable: list[int], rng: np.random.Generator
) -> dict[int, int | None]:
    """For each chosen sample the donor of its new segment: the next in a random circle, never of the same record.

    Where the next is of the same record, the donor is any of the `usable` that is not; None where there is none.
    """
    circle = [chosen[i] for i in rng.permutation(len(chosen)).tolist()]

    def differ(a: int, b: int) -> bool:
        return (samples[a].get("corpus"), samples[a].get("key")) != (samples[b].get("corpus"), samples[b].get("key"))

    found: dict[int, int | None] = {}
    for place, i in enumerate(circle):
        following = circle[(place + 1) % len(circle)]
        if differ(i, following):
            found[i] = following
            continue
        others = [j for j in usable if differ(i, j)]
        found[i] = others[int(rng.integers(len(others)))] if others else None
    return found
