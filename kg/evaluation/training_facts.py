"""Checks that evaluated triples are held out: the graphs that a model was trained on, and the evaluated triples that
they state.

A graph other than the one that was trained on has its uses: one that describes entities which a model of texts never
saw, or a subset of the same graph. The training triples count all the same: they filter, and their entities are seen.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kg.evaluation.triple_scoring import ScoredVectors, in_words
from kg.graph.builder import META
from kg.graph.store import IN_CORPUS, GraphStore
from kg.vectors.triple_ranks import rows_of
from kg.vectors.vectors import TRAINED_ON, GraphVectors
from workbench.core.errors import WorkbenchError
from workbench.core.files.stores import Store
from workbench.core.files.urls import url_of
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun

logger = logging.getLogger(__name__)
COUNTED = "triples trained on"


@dataclass(frozen=True)
class TrainingFacts:
    """The `graph` of the option --graph, and the `others` that the model was trained on by its own record."""

    model: Path
    graph: GraphStore
    others: tuple[GraphStore, ...]

    @classmethod
    def of(cls, scored: EvaluatedRun | ScoredVectors, graph: GraphStore) -> TrainingFacts:
        """For a run the graphs that it reads and those of its triples corpora; for vectors their training graph.

        Raises:
            WorkbenchError: vectors of another graph, which is not where it was, or whose ids mean other entities.
        """
        if isinstance(scored, ScoredVectors):
            scored.check_entities(graph)
            model, found = scored.path, [*_of_vectors(scored, graph)]
        else:
            model, found = scored.folder, [*_of_run(scored)]
        others = {store.identity: store for store in found if store.identity != graph.identity}
        if found and all(store.identity != graph.identity for store in found):
            logger.warning(
                "%s was trained on %s, and --graph %s is another graph: its entities are ranked, and the triples of "
                "both count as training triples",
                *(model, _listed(others.values()), graph.path),
            )
        return cls(model, graph, tuple(others.values()))

    @property
    def graphs(self) -> tuple[GraphStore, ...]:
        return self.graph, *self.others

    @property
    def named(self) -> dict[str, GraphStore]:
        """The graphs by what messages call them."""
        return {f"--graph {self.graph.path}": self.graph, **{f"trained on {g.path}": g for g in self.others}}

    @property
    def rows(self) -> np.ndarray:
        """Their triples as rows of the graph [triples, 3], as far as it holds their entities and relations."""
        return np.concatenate([self.graph.triple_rows, *(rows_of(self.graph, g.triples())[0] for g in self.others)])

    @property
    def reported(self) -> list[str]:
        """For the variant of a result."""
        return [f"trained on {_listed(self.others)} next to the graph"] if self.others else []

    def state(self, triples: np.ndarray) -> np.ndarray:
        """Which of the triples, rows of the graph [triples, 3], one of the graphs states: [triples] bool."""
        return np.any([stated_by(each, triples, self.graph) for each in self.graphs], axis=0)

    def count(self, triples: np.ndarray, what: str) -> int:
        """The number of triples, rows of the graph, that are not held out. It is logged.

        Args:
            what: they are, for messages.

        Raises:
            WorkbenchError: none is.
        """
        stated = self.state(triples)
        count = int(stated.sum())
        if not count:
            return 0
        example = " - ".join(in_words(self.graph, triples[stated.argmax()]).values())
        found = f"{count:,} of the {len(triples):,} triples of {what} are in {_listed(self.graphs)}, such as {example}"
        if count == len(triples):
            raise WorkbenchError(
                f"{found}: none is held out, as {self.model} was trained on them. Hold triples out (`workbench "
                "prepare triples SOURCE --split test=0.1 --output CORPUS`), train on CORPUS, and give CORPUS-test"
            )
        logger.warning("%s: %s was trained on them, so its numbers are too high", found, self.model)
        return count


def stated_by(store: GraphStore, triples: np.ndarray, graph: GraphStore) -> np.ndarray:
    """Which triples, rows of a graph [triples, 3], a graph (that one, or another) states: [triples] bool."""
    ids, relations = graph.ids, graph.relation_ids
    return np.array([store.has(ids[h], relations[r], ids[t]) for h, r, t in triples.tolist()], bool)


def _of_run(run: EvaluatedRun) -> Iterator[GraphStore]:
    for place in run.read.get("graph", {}):
        yield GraphStore.open(place)
    for corpus in run.task.spec.corpora:  # those may be gone
        url = url_of(corpus)
        if (Path(corpus) / IN_CORPUS / META).is_file() or (url and Store(url).read(f"{IN_CORPUS}/{META}") is not None):
            yield GraphStore.open(f"{corpus}/{IN_CORPUS}")


def _of_vectors(scored: ScoredVectors, graph: GraphStore) -> Iterator[GraphStore]:
    for place, identity in training_graphs(scored.vectors).items():
        store = graph if identity == graph.identity else _at(place)
        if store is None or store.identity != identity:
            raise WorkbenchError(
                f"{scored.path} was trained on another graph than {graph.path}. That graph was at {place} and is not "
                "there any more, so the held-out triples are unknown. Name the training graph with --graph, or put it "
                "back, or train vectors on this graph (`workbench prepare vectors`)"
            )
        yield store


def _at(place: str) -> GraphStore | None:
    try:
        return GraphStore.open(place)
    except WorkbenchError:  # gone, or damaged
        return None


def training_graphs(vectors: GraphVectors) -> dict[str, str]:
    """The digests of the graphs that vectors say they were trained on, by place; none where they don't say."""
    if TRAINED_ON in vectors.provenance:
        return dict(vectors.provenance[TRAINED_ON])
    graph = vectors.provenance.get("graph") or {}
    foreign = "imported" in vectors.provenance or "checkpoint" in vectors.provenance  # of its entities alone
    return {} if foreign or "digest" not in graph else {str(graph.get("path", "(nowhere)")): str(graph["digest"])}


def _listed(graphs: Iterable[GraphStore]) -> str:
    return ", ".join(str(each.path) for each in graphs)
