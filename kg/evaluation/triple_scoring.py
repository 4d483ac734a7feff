"""Base of the evaluations over graphs: a run, or vectors, that score triples, and the triples of corpora."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from kg.evaluation.task_options import TripleScoring
from kg.graph.store import GraphStore
from kg.vectors.scores import TripleScores, VectorScores
from kg.vectors.triple_ranks import rows_of
from kg.vectors.vectors import GraphVectors, load_vectors
from workbench.components.build_context import Identities
from workbench.core.errors import WorkbenchError
from workbench.core.processes.distributed import World
from workbench.corpora.corpus import Corpus
from workbench.evaluation.options import Predicting
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun, find_fitting_objective
from workbench.interop.run_or_checkpoint import load
from workbench.models.network import Network
from workbench.pretraining.objective import Head
from workbench.pretraining.task import Task
from workbench.runs.loaded_run import LoadedRun

VECTORS = ".safetensors"


@runtime_checkable
class TripleScorer(Protocol):
    """An objective that teaches a network how true triples are."""

    def triple_scores(
        self, task: Task, network: Network, head: Head, graph: GraphStore, batch_size: int
    ) -> TripleScores:
        """Scores of the triples of a graph, `batch_size` at a time; the task is in evaluation mode."""


@dataclass(frozen=True)
class ScoredVectors:
    """A file of vectors, evaluated as a run is."""

    path: Path
    vectors: GraphVectors
    world: World = field(default_factory=World)

    @property
    def checkpoint(self) -> str:
        return str(self.path)

    @property
    def read(self) -> Identities:
        return {}  # the file notes itself where it is opened

    def check_linked(self, corpus: Corpus) -> None:
        """Vectors read no text."""

    def check_entities(self, graph: GraphStore) -> None:
        """
        Raises:
            WorkbenchError: they are of another graph's entities, and some of their ids are alike.
        """
        space = self.vectors.space
        if space is None or space.same(graph.space):
            return
        alike = next((entity for entity in graph.ids if entity in self.vectors.rows), None)
        if alike is not None:
            raise WorkbenchError(
                f"{self.path} has vectors of the entities of the graph {space}, and --graph {graph.path} is "
                f"another graph. Ids such as {alike!r} are in both, for different entities. Name the graph of the "
                "vectors with --graph. If both graphs mean the same entities, prepare both with one `workbench prepare "
                "triples --namespace NAME`, and train the vectors again"
            )


def scoring_run(loaded: LoadedRun, options: TripleScoring | Predicting) -> EvaluatedRun:
    """The task of a loaded run that scores triples.

    Raises:
        WorkbenchError: none of its objectives does.
    """
    return find_fitting_objective(
        loaded,
        options.run,
        lambda task, placed: isinstance(placed.objective, TripleScorer),
        "an objective that scores triples",
        "pretrain one that has, such as kg-bert, or give a .safetensors file of vectors",
        **options.where,
        control=options.control,
    )


def open_scored(scoring: TripleScoring | Predicting) -> EvaluatedRun | ScoredVectors:
    """The run or the vectors that RUN names.

    Raises:
        WorkbenchError: a run without an objective that scores triples, or an option that vectors don't have.
    """
    if scoring.run.suffix != VECTORS:
        loaded = load(scoring.run, scoring.overrides, control=scoring.control, trust=scoring.trust)
        return scoring_run(loaded, scoring)
    row = {
        "--control": scoring.control,
        **{f"--{name}": value for name, value in scoring.where.items()},
        "KEY=VALUE": scoring.overrides,
    }
    row |= {"--precision": scoring.precision if scoring.precision != "float32" else None}
    for name, value in row.items():
        if value:
            raise WorkbenchError(f"{name} needs a run, and {scoring.run} is a file of vectors; leave {value} out")
    return ScoredVectors(scoring.run, load_vectors(scoring.run))


def scores_of(scored: EvaluatedRun | ScoredVectors, graph: GraphStore, batch_size: int) -> TripleScores:
    """How it scores the triples of a graph."""
    if isinstance(scored, ScoredVectors):
        return VectorScores(scored.vectors, graph)
    objective = scored.objective.objective
    assert isinstance(objective, TripleScorer)
    return objective.triple_scores(scored.task, scored.network, scored.head, graph, batch_size)


@dataclass(frozen=True)
class TripleRows:
    """Triples of a corpus as rows of a graph [triples, 3], and how many name something that the graph does not hold."""

    rows: np.ndarray
    left_out: int

    @classmethod
    def of(cls, corpus: Corpus, graph: GraphStore) -> TripleRows:
        """All of them.

        Raises:
            WorkbenchError: it is no triples corpus, or the graph holds none of the triples.
        """
        if corpus.kind != "triples":
            raise WorkbenchError(
                f"corpus {corpus.name!r} holds {corpus.kind}; held-out triples are a corpus of their own: "
                "`workbench prepare triples test.txt --output CORPUS`"
            )
        named = [(str(s["id"]), t["relation"], t["tail"]) for s in corpus for t in s["triples"]]
        rows, left_out = rows_of(graph, named)
        if not len(rows):
            raise WorkbenchError(
                f"none of the {len(named):,} triples of corpus {corpus.name!r} is about entities and relations of the "
                f"graph {graph.path}; give the graph that they were held out of"
            )
        return cls(rows, left_out)


def relation_name(graph: GraphStore, row: int) -> str:
    """A relation's id, with its label where it has one."""
    relation = graph.relation_ids[row]
    label = graph.relation_label(relation)
    return relation if label == relation else f"{relation} ({label})"


def in_words(graph: GraphStore, triple: np.ndarray) -> dict[str, str]:
    """The labels of a triple's head, relation and tail; `triple` is a row [3]."""
    head, relation, tail = triple.tolist()
    return {
        "head": graph.label(graph.ids[head]),
        "relation": graph.relation_label(graph.relation_ids[relation]),
        "tail": graph.label(graph.ids[tail]),
    }


def by_ids(graph: GraphStore, triple: np.ndarray) -> dict[str, str]:
    """The key of a triple among an evaluation's items, and the ids of its head, relation and tail; a row [3]."""
    head, relation, tail = triple.tolist()
    names = {"head": graph.ids[head], "relation": graph.relation_ids[relation], "tail": graph.ids[tail]}
    return {"key": " ".join(names.values()), **names}
