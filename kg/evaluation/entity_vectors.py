"""The entities of a sample's mentions, and their vectors in a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from kg.sequences.transforms.entity_stream import EntityStreamTransform
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.sequences.sequence import Sample


def linked_at(sample: Sample, stretch: Iterable[int]) -> str:
    """The id of the entity that is linked to exactly the stretch [start, end); empty where there is none."""
    place = tuple(stretch)
    return next((str(span[2]) for span in sample.get("spans", ()) if tuple(span[:2]) == place), "")


def entity_transform(run: EvaluatedRun) -> EntityStreamTransform | None:
    """The transform that adds entities to the run's network. None if there is none, or a control ablates them."""
    return next(
        (
            transform
            for transform in run.task.transforms
            if isinstance(transform, EntityStreamTransform) and transform.linked
        ),
        None,
    )


@torch.inference_mode()
def vectors_of(run: EvaluatedRun, transform: EntityStreamTransform, entities: Sequence[str]) -> np.ndarray:
    """The vectors as the network gets them, float32 [entities, size]; zeros of what the table does not have."""
    rows = torch.tensor([transform.rows.get(name, -1) + 1 for name in entities])
    device = next(run.network.parameters()).device
    vectors: np.ndarray = (
        run.network.embeddings[transform.stream]({"entity_ids": rows.to(device)}).float().cpu().numpy()
    )
    return vectors
