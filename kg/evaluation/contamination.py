"""Facts of a test set that a graph states. A model may look them up instead of reading them.

A text with two marked mentions asks for a fact: the entities that are linked to exactly these mentions, and the
relation of its label. ERNIE-THU's authors removed such facts of FewRel from their graph. A text with tagged chunks, or
a mention with types, asks for the class of the entity that is linked to exactly this stretch. `prepare triples
--without` removes the facts of both, and evaluations count those that remain (`stated_facts`, `stated_types`; of chunks
`workbench.evaluation.scoring.stated_tags`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kg.evaluation.entity_vectors import linked_at
from kg.evaluation.training_facts import training_graphs
from kg.graph.store import GraphStore
from kg.objectives.relations import ROLES
from kg.vectors.vectors import load_vectors
from workbench.components.build_context import Identities
from workbench.core.errors import WorkbenchError
from workbench.evaluation.scoring.stated_tags import annotated_chunks
from workbench.sequences.sequence import Sample

log = logging.getLogger(__name__)


class LabelledPair(NamedTuple):
    """The linked head and tail of a text, and its labels, of which one is the relation."""

    head: str
    tail: str
    relations: frozenset[str]


def labelled_pair(sample: Sample) -> LabelledPair | None:
    """The fact that a text asks for; None where it marks no two mentions, or not both are linked."""
    marks = {mark[2]: mark for mark in sample.get("marks", ())}
    if not all(role in marks for role in ROLES):
        return None
    head, tail = (linked_at(sample, marks[role][:2]) for role in ROLES)
    if not head or not tail:
        return None
    return LabelledPair(head, tail, frozenset(str(label) for label in sample.get("labels", {}).values()))


def classified_entities(sample: Sample) -> set[str]:
    """The entities whose class a text asks for: those that are linked to exactly a tagged chunk, or to its mention."""
    stretches = [chunk[:2] for chunk in annotated_chunks(sample)]
    stretches += [tuple(sample["mention"][:2])] if "mention" in sample else []
    return {str(span[2]) for span in sample.get("spans", ()) if tuple(span[:2]) in stretches}


def graphs_read(read: Identities) -> list[GraphStore]:
    """The graphs that a run reads, and those that its vectors were trained on, as far as they are available."""
    wanted = dict(read.get("graph", {}))
    for place in read.get("vectors", {}):
        try:
            wanted |= training_graphs(load_vectors(place))
        except WorkbenchError as error:
            log.warning("facts of the test set in the graph of %s are not counted: %s", place, error)
    found: dict[str, GraphStore] = {}
    for place, identity in wanted.items():
        try:
            store = GraphStore.open(place)
        except WorkbenchError:
            log.warning("the graph %s does not exist any more: its facts of the test set are not counted", place)
            continue
        if store.identity != identity:
            log.warning("the graph %s was replaced: its facts of the test set are not counted", place)
            continue
        found[identity] = store
    return list(found.values())


def stated_facts(read: Identities, samples: Iterable[Sample]) -> dict[str, int]:
    """Counts of the texts with a pair of entities that a graph of the run knows, of those with a fact that it states,
    and of those with a pair that it joins."""
    graphs = graphs_read(read)
    if not graphs:
        return {}
    exact = joined = known = 0
    for asked in filter(None, map(labelled_pair, samples)):
        known += any(asked.head in graph and asked.tail in graph for graph in graphs)
        exact += any(graph.has(asked.head, r, asked.tail) for graph in graphs for r in asked.relations)
        joined += any(_joins(graph, asked) for graph in graphs)
    _warn(exact, "texts ask for a fact", "prepare triples --without CORPUS leaves them out of the graph")
    counts = {"pairs that the graph knows": known, "facts that the graph states": exact}
    return {**counts, "pairs that the graph joins": joined}


def stated_types(read: Identities, samples: Iterable[Sample]) -> dict[str, int]:
    """The number of linked mentions of which a graph of the run states one of the right types, by name."""
    graphs = graphs_read(read)
    if not graphs:
        return {}
    stated = 0
    for sample in samples:
        entity = linked_at(sample, sample["mention"])
        right = {_plain(name) for name in sample.get("types", ())}
        stated += any(right & set(_called(graph, entity)) for graph in graphs if entity in graph)
    return {"types that the graph states": stated}


def stated_clozes(read: Identities, facts: Iterable[tuple[str, str, str]]) -> dict[str, int]:
    """The number of (relation, subject, object) that a graph of the run states. That is no fault: it may be meant to
    look them up."""
    graphs = graphs_read(read)
    asked = ((head, relation, tail) for relation, head, tail in facts)
    stated = sum(any(graph.has(*fact) for graph in graphs) for fact in asked)
    return {"facts that the graph states": stated} if graphs else {}


def _warn(count: int, what: str, advice: str) -> None:
    if count:
        log.warning("%s %s that the run's graph states; %s", f"{count:,}", what, advice)


def _joins(graph: GraphStore, asked: LabelledPair) -> bool:
    return any(tail == asked.tail for _, tail in graph.neighbours(asked.head)) or any(
        tail == asked.head for _, tail in graph.neighbours(asked.tail)
    )


def _called(graph: GraphStore, entity: str) -> Iterator[str]:
    """The names of an entity's types and tails in the graph."""
    for name in (*graph.types(entity), *(tail for _, tail in graph.neighbours(entity))):
        yield _plain(graph.label(name) if name in graph else name)


def _plain(name: str) -> str:
    """The last part of a type's name (/person/actor), with spaces."""
    return str(name).rstrip("/").rpartition("/")[2].replace("_", " ").casefold()
