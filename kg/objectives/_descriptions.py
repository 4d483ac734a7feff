"""Descriptions of a graph read one by one, for evaluation: a vector of each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from kg.graph.store import GraphStore
from kg.sequences.builders.described_triple import DescribedTripleBuilder
from kg.sequences.description_roles import CAST, CastMember
from workbench.core.errors import WorkbenchError
from workbench.evaluation.scoring.passes import forward_pass
from workbench.models.network import Network
from workbench.pretraining.forward import NetworkOutput
from workbench.pretraining.task import Task
from workbench.sequences.sequence import Sample

log = logging.getLogger(__name__)


def reading(task: Task, graph: GraphStore) -> Task:
    """The task with the descriptions of a graph.

    Raises:
        WorkbenchError: it has another builder than `kg.described_triple`.
    """
    if not isinstance(task.builder, DescribedTripleBuilder):
        raise WorkbenchError(f"tasks.{task.name} reads no descriptions; its builder must be kg.described_triple")
    return task.with_builder(task.builder.reading(graph))


def encoded(
    parts: Sequence[CastMember],
    task: Task,
    network: Network,
    stream: str,
    batch_size: int,
    first: int = 0,
    vectors_of: Callable[[NetworkOutput], Tensor] | None = None,
) -> Tensor:
    """A vector of each description [parts, size] float32, on the CPU; zeros where there is no text.

    Args:
        task: has the builder `kg.described_triple`, in evaluation mode.
        first: the number of the first of them, where they are a range of more; a multiple of `batch_size`.
        vectors_of: the vectors of the sequences that a network has read; by default their summary rows.
    """
    vectors = torch.zeros(len(parts), network.sizes[stream])
    read = 0
    samples = _samples(parts, batch_size, first)
    for forward in forward_pass(network, task.sequences, samples, first // batch_size):
        rows = torch.tensor([int(sequence.key) for sequence in forward.sequences])
        if vectors_of is None:
            found = network.summary_rows(forward.states, forward.batch, stream)
        else:
            found = vectors_of(forward.read)
        vectors = vectors if vectors.shape[1] == found.shape[1] else vectors.new_zeros(len(parts), found.shape[1])
        vectors[rows] = found.float().cpu()
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
