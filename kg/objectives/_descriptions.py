"""Descriptions of a graph read one by one, for evaluation: a vector of each."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from kg.sequences.description_roles import CAST, CastMember
from workbench.evaluation.scoring.passes import forward_pass
from workbench.models.network import Network
from workbench.pretraining.task import Task
from workbench.sequences.sequence import Sample

log = logging.getLogger(__name__)


def encoded(
    parts: Sequence[CastMember], task: Task, network: Network, stream: str, batch_size: int, first: int = 0
) -> Tensor:
    """The summary of each description [parts, hidden_size] float32, on the CPU; zeros where there is no text.

    Args:
        task: has the builder `kg.described_triple`, in evaluation mode.
        first: the number of the first of them, where they are a range of more; a multiple of `batch_size`.
    """
    vectors = torch.zeros(len(parts), network.sizes[stream])
    read = 0
    samples = _samples(parts, batch_size, first)
    for forward in forward_pass(network, task.sequences, samples, first // batch_size):
        rows = torch.tensor([int(sequence.key) for sequence in forward.sequences])
        vectors[rows] = network.summary_rows(forward.states, forward.batch, stream).float().cpu()
        read += len(rows)
    if read < len(parts):
        log.warning(
            "%d of %d have neither description nor label: their vectors are zero", len(parts) - read, len(parts)
        )
    return vectors


def _samples(parts: Sequence[CastMember], size: int, first: int) -> Iterator[list[Sample]]:
    for begin in range(0, len(parts), size):
        numbered = enumerate(parts[begin : begin + size], begin)
        yield [{"key": str(number), "draw": (first + number,), CAST: [part]} for number, part in numbered]
