"""The triples of a corpus as its graph states them, or as the graph of a control does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kg.graph.shuffle import FALSE_FACTS
from kg.graph.store import GraphStore


class StatedTriples:
    """Mixin of components that read the triples of a corpus and have its graph. `shuffled-kg` and `permuted-kg` have
    the tails of `graph.under(control, seed)`."""

    controls = tuple(FALSE_FACTS)

    def open_graph(self, graph: str | GraphStore, control: str | None, seed: int) -> None:
        """Open the graph, and the one that the control leaves."""
        self.graph = graph if isinstance(graph, GraphStore) else GraphStore.open(graph)
        self.stated = self.graph.under(control, seed)

    def stated_triples(self, sample: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
        """The triples of a sample as ids; the tails of those that the graph has are as stated under the control."""
        head = str(sample["id"])
        for triple in sample["triples"]:
            relation, tail = str(triple["relation"]), str(triple["tail"])
            if self.stated is not self.graph:
                known = [fact.other for fact in self.graph.facts(head, "out", [relation])]
                if tail in known:
                    tail = self.stated.facts(head, "out", [relation])[known.index(tail)].other
            yield head, relation, tail
