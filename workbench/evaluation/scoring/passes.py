"""One pass over a corpus with a trained network: sequences, batch and states together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from workbench.corpora.corpus import Corpus
from workbench.corpora.reading.reader import Reader
from workbench.models.network import Network, States
from workbench.pretraining.forward import NetworkOutput, read
from workbench.sequences.batch import Batch, collate
from workbench.sequences.sequence import Sample
from workbench.sequences.sequence import Sequence as TokenSequence

SequenceBuilding = Callable[[list[Sample], tuple[int, ...]], list[TokenSequence]]


@dataclass
class PassOutput:
    """The forward pass of a micro-batch: `sequences[i]` is the i-th sequence of `batch`, whose states are `states`."""

    samples: list[Sample]
    sequences: list[TokenSequence]
    read: NetworkOutput

    @property
    def batch(self) -> Batch:
        return self.read.batch

    @property
    def states(self) -> States:
        return self.read.states


def sample_pass(
    corpora: Sequence[Corpus],
    *,
    size: int,
    unit: str | None,
    window: int | None = None,
    limit: int | None = None,
    first: int = 0,
    records: int | None = None,
) -> Iterator[list[Sample]]:
    """Every item once, in the corpora's own order, at most `size` at a time; at most `limit` items, from the item
    numbered `first` on, and those of the first `records` records alone."""
    reader = Reader.finite(corpora, lanes=1, micro_batch_size=size, unit=unit, window=window)
    total = reader.total if records is None else reader.of_first(records)
    left = total - first if limit is None else min(limit, total - first)
    for number in range(first // size, reader.steps):
        if left <= 0:
            return
        before = max(first - number * size, 0)
        samples = reader.micro_batch(number, 0)[before:][:left]
        left -= len(samples)
        yield samples


@torch.inference_mode()
def forward_pass(
    network: Network, transform: SequenceBuilding, samples: Iterable[list[Sample]], first: int = 0, **keep: Any
) -> Iterator[PassOutput]:
    """Sequences and states of each micro-batch, numbered from `first` on; one without sequences is left out. `keep` are
    options of `workbench.pretraining.forward.read`."""
    device = next(network.parameters()).device
    for number, group in enumerate(samples, first):
        sequences = transform(group, (number,))
        if sequences:
            batch = collate(sequences).to(device)
            yield PassOutput(group, sequences, read(network, batch, **keep))
