"""`prepare entity-vectors`: vectors of the entities of a graph, encoded from their descriptions."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count
from workbench.core.options.command import Trust
from workbench.core.packages import extra
from workbench.runs.output_places import OutputFile
from workbench.runs.stored_run import StoredFolder

log = logging.getLogger(__name__)


def entity_vectors(
    run: Annotated[StoredFolder, typer.Argument(help="A run trained with kg.knowledge_embedding.", show_default=False)],
    graph: Annotated[Path, typer.Argument(help="A triples corpus, or a graph store.", show_default=False)],
    output: Annotated[OutputFile, typer.Option("--output", "-o", help="File, .safetensors.", show_default=False)],
    batch_size: Annotated[Count, typer.Option(help="Descriptions in a batch.")] = 64,
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
    with extra("kg"):
        from kg.graph.store import GraphStore
        from kg.objectives.knowledge_embedding import KnowledgeEmbedding
        from kg.vectors.vectors import TRAINED_ON, GraphVectors, save_vectors
    from workbench.evaluation.scoring.evaluated_run import find_fitting_objective
    from workbench.interop.run_or_checkpoint import load

    store = GraphStore.open(graph)
    found = find_fitting_objective(
        load(run, trust=trust),
        run,
        lambda task, placed: isinstance(placed.objective, KnowledgeEmbedding),
        "an objective that encodes entity descriptions",
        "pretrain a recipe that has one, such as kepler",
    )
    objective = found.objective.objective
    assert isinstance(objective, KnowledgeEmbedding)
    made = objective.entity_vectors(found.task, found.network, found.head, store, batch_size)
    provenance = {
        **made.provenance,
        "checkpoint": found.checkpoint,
        TRAINED_ON: found.read.get("graph", {}),
        "graph": {"path": str(store.path), "shuffled": None, **store.meta},
    }
    save_vectors(GraphVectors(made.ids, made.vectors, made.relation_ids, made.relations, provenance), output)
    log.info("%s: %d vectors of size %d", output, *made.vectors.shape)
