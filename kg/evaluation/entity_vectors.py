"""The entities of a sample's mentions, and the vectors that a run gives them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from kg.sequences.steps.entity_stream import EntityStream
from workbench.evaluation.opening import Evaluated
from workbench.sequences.sequence import Sample


def linked_at(sample: Sample, stretch: Iterable[int]) -> str:
    """The id of the entity that is linked to exactly the stretch [start, end); empty where there is none."""
    place = tuple(stretch)
    return next((str(span[2]) for span in sample.get("spans", ()) if tuple(span[:2]) == place), "")


def entity_step(run: Evaluated) -> EntityStream | None:
    """The step that gives the run's network its entities, unless there is none, or a control took them away."""
    return next((step for step in run.task.steps if isinstance(step, EntityStream) and step.linked), None)


@torch.inference_mode()
def vectors_of(run: Evaluated, step: EntityStream, entities: Sequence[str]) -> np.ndarray:
    """The vectors as the network gets them, float32 [entities, size]; zeros of what the table does not have."""
    rows = torch.tensor([step.rows.get(name, -1) + 1 for name in entities])
    device = next(run.network.parameters()).device
    vectors: np.ndarray = run.network.embeddings[step.stream]({"entity_ids": rows.to(device)}).float().cpu().numpy()
    return vectors
