"""`prepare entity-vectors`: vectors of the entities of a graph, encoded from their descriptions."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from pipelines.commands.options import Workers
from pipelines.preparing.engines.ray_core import chosen_engine
from workbench.core.errors import WorkbenchError
from workbench.core.local_copies import with_urls
from workbench.core.options.bounds import Count
from workbench.core.options.command import Address, EngineName, Trust
from workbench.core.packages import extra
from workbench.runs.output_places import OutputFile
from workbench.runs.stored_run import StoredFolder

if TYPE_CHECKING:
    from kg.graph.store import GraphStore
    from workbench.evaluation.scoring.evaluated_run import EvaluatedRun

log = logging.getLogger(__name__)
UNIT = 64
"""Batches in a unit of work."""


def entity_vectors(
    run: Annotated[StoredFolder, typer.Argument(help="A run trained with kg.knowledge_embedding.", show_default=False)],
    graph: Annotated[Path, typer.Argument(help="A triples corpus, or a graph store.", show_default=False)],
    output: Annotated[OutputFile, typer.Option("--output", "-o", help="File, .safetensors.", show_default=False)],
    batch_size: Annotated[Count, typer.Option(help="Descriptions in a batch.")] = 64,
    engine: EngineName = "local",
    workers: Workers = 1,
    address: Address = None,
    trust: Trust = False,
) -> None:
    """Encode the descriptions of all entities of a graph into vectors, and add those of its relations.

    Entities that were not in training get vectors, too. Relations must be those of the training, unless the run encodes
    their texts. The file has the format of `prepare vectors`: kg.entity_table reads it, and it scores triples.

    Examples:

      workbench prepare entity-vectors runs/kepler corpora/codex-s --output kepler.safetensors
    """
    if output.suffix != ".safetensors":
        raise WorkbenchError(f"--output {output}: vectors are written to a .safetensors file; choose that suffix")
    chosen = chosen_engine(engine, workers, address)
    with extra("kg"):
        from kg.vectors.vectors import TRAINED_ON, GraphVectors, save_vectors

    task = DescriptionTask(run, graph, batch_size, trust)
    _opened.cache_clear()
    found, store = _opened(task)
    objective: Any = found.objective.objective
    entities = None
    if not chosen.in_process:
        import torch

        units = range(0, store.num_entities, UNIT * batch_size)
        with chosen.opened([output.absolute().parent]):
            entities = torch.from_numpy(np.concatenate(list(chosen.each(described_unit, task, units, "auto"))))
    made = objective.entity_vectors(found.task, found.network, found.head, store, batch_size, entities)
    provenance = {
        **made.provenance,
        "checkpoint": found.checkpoint,
        TRAINED_ON: found.read.get("graph", {}),
        "graph": {"path": with_urls(str(store.path)), "shuffled": None, **store.meta},
    }
    save_vectors(GraphVectors(made.ids, made.vectors, made.relation_ids, made.relations, provenance), output)
    log.info("%s: %d vectors of size %d", output, *made.vectors.shape)


@dataclass(frozen=True)
class DescriptionTask:
    """What a worker needs to encode descriptions; it receives this once."""

    run: Path
    graph: Path
    batch_size: int
    trust: bool


@lru_cache(maxsize=1)
def _opened(task: DescriptionTask) -> tuple[EvaluatedRun, GraphStore]:
    """The objective of the run that encodes descriptions, and the graph; opened once in each process."""
    with extra("kg"):
        from kg.graph.store import GraphStore
        from kg.objectives.knowledge_embedding import KnowledgeEmbedding
    from workbench.evaluation.scoring.evaluated_run import find_fitting_objective
    from workbench.interop.run_or_checkpoint import load

    store = GraphStore.open(task.graph)
    found = find_fitting_objective(
        load(task.run, trust=task.trust),
        task.run,
        lambda _, placed: isinstance(placed.objective, KnowledgeEmbedding),
        "an objective that encodes entity descriptions",
        "pretrain a recipe that has one, such as kepler",
    )
    return found, store


def described_unit(task: DescriptionTask, first: int) -> np.ndarray:
    """[entities, hidden_size]: the vectors of a unit's entities, which begins with the entity numbered `first`."""
    found, store = _opened(task)
    objective: Any = found.objective.objective
    count = UNIT * task.batch_size
    vectors: np.ndarray = objective.described(found.task, found.network, store, task.batch_size, first, count).numpy()
    return vectors
