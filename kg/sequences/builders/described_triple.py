"""The entities of a triple as their descriptions, each a sequence: [CLS] description [SEP] (KEPLER, arXiv 1911.06136).

With a relation behind the entity, as in KEPLER-Cond: [CLS] description [SEP] relation [SEP].
"""

from __future__ import annotations

import copy
from typing import Any, Protocol, Self, runtime_checkable

from kg.sequences.description_roles import CAST, CastMember
from workbench.components.build_context import known_as
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Location
from workbench.sequences.builder import Builder
from workbench.sequences.missing_fields import missing
from workbench.sequences.sequence import Sample, Sequence
from workbench.text.tokenizer import Encoding, Tokenizer

WITHOUT_TEXT = "triples of entities without description and label"


@runtime_checkable
class DescribedGraph(Protocol):
    """The interface of the graph that the builder reads (`kg.graph.store.GraphStore` is one)."""

    def check_described(self) -> None:
        """Raises WorkbenchError: nothing is written about any entity."""

    def text_of(self, entity: str) -> str:
        """The description of an entity, or else its name; empty if it has neither."""

    def name_of(self, entity: str) -> str | None:
        """The name of an entity, where it has one."""

    def relation_label(self, relation: str) -> str:
        """The readable name of a relation."""


class DescribedTripleBuilder(Builder):
    """The entities of a triple as their descriptions: [CLS] description [SEP] (KEPLER, arXiv:1911.06136). Each triple
    is an item and makes a sequence for each entity. The graph has the descriptions.

    The sequences of a triple are a group, and their `role` says which one is the head, the tail, a false head, ...
    (`kg.sequences.description_roles`). Without a description an entity is read by its label; a triple with one that has
    neither is left out and counted. What is too long keeps its beginning.

    Args:
        graph: a triples corpus, or a graph store, that describes every entity.
        named: the entity's name before its description (SimKGC).

    Raises:
        WorkbenchError: the graph describes no entity at all, or a triple names one that it does not hold.
    """

    unit = "triples"
    unaffected_by = ("shuffled-kg", "permuted-kg")  # the texts are those of entities, whatever the triples are

    def __init__(
        self, tokenizer: Tokenizer, max_length: Count, graph: Location | DescribedGraph, named: bool = False
    ) -> None:
        super().__init__(tokenizer, max_length, segments=2)
        self.named = named
        self.graph = _open(graph) if isinstance(graph, str) else graph
        self.graph.check_described()

    def reading(self, graph: DescribedGraph) -> Self:
        """The same by what another graph writes.

        Raises:
            WorkbenchError: it writes nothing of any entity.
        """
        graph.check_described()
        other = known_as(copy.copy(self), self)
        other.graph = graph
        return other

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        groups = [group for sample in samples for group in self._groups(sample)]
        texts = dict.fromkeys(text for _, _, read in groups for _, part in read for text in part)
        encoded = dict(zip(texts, self.tokenizer.encode_batch(list(texts)), strict=True))
        return [
            self._sequence(sample, number, place, part, [encoded[text] for text in written])
            for sample, number, read in groups
            for place, (part, written) in enumerate(read)
        ]

    def _groups(self, sample: Sample) -> list[tuple[Sample, int, list[tuple[CastMember, list[str]]]]]:
        """The sample with the number of each triple and the texts of its cast."""
        groups = []
        for number, cast in enumerate(_casts(sample)):
            read = [(part, self._texts(part)) for part in cast]
            if all(text for _, texts in read for text in texts):
                groups.append((sample, number, read))
            else:
                self.dropped[WITHOUT_TEXT] += 1
        return groups

    def _texts(self, part: CastMember) -> list[str]:
        entity = [] if part.entity is None else [self._entity_text(part.entity)]
        if part.relation is None:
            return entity
        return [*entity, ("inverse " if part.inverse else "") + self.graph.relation_label(part.relation)]

    def _entity_text(self, entity: str) -> str:
        text, name = self.graph.text_of(entity), self.graph.name_of(entity) if self.named else None
        return text if not name or text == name else f"{name}: {text}"

    def _sequence(self, sample: Sample, number: int, place: int, part: CastMember, texts: list[Encoding]) -> Sequence:
        room = self.max_length - self.frame.size(len(texts))
        behind = [self.truncate(text, [], room // 2)[0] for text in texts[1:]]
        first, _ = self.truncate(texts[0], [], room - sum(map(len, behind)))
        stream, _ = self.frame.lay([first, *behind])
        group = (*sample.get("draw", ()), number)
        made = Sequence({part.stream: stream}, (*group, place), str(sample.get("key", "")), role=part.role, group=group)
        made.labels = dict(sample.get("labels", {}))
        return made


def _casts(sample: Sample) -> list[list[CastMember]]:
    """The texts that are read of each of the sample's triples."""
    if CAST in sample:
        return [sample[CAST]]
    triples: list[dict[str, Any]] = sample.get("triples") or []
    if not triples:
        raise missing(sample, "triples")
    return [[CastMember("head", str(sample["id"])), CastMember("tail", str(triple["tail"]))] for triple in triples]


def _open(graph: str) -> DescribedGraph:
    from kg.graph.store import GraphStore

    return GraphStore.open(graph)
