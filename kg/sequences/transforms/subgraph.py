"""GreaseLM's input: the subgraph around the linked entities of a text, as a stream of nodes and one of edges.

Zhang et al., "GreaseLM: Graph REASoning Enhanced Language Models for Question Answering", ICLR 2022 (arXiv 2201.08860),
section 3.1. The first node is the interaction node: entity 0, the zero vector, with an edge from and to every linked
entity. The paper takes all paths of two triples between linked entities and prunes nodes by a language model; here the
nodes are the linked entities and their first neighbours in the graph, so that two entities with a common neighbour are
joined by such a path.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kg.graph.shuffle import FALSE_FACTS
from kg.graph.store import GraphStore
from kg.sequences.table_transform import TableTransform
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, CountOrZero, Location, Name, Seed, Share, Size, Word
from workbench.sequences.sequence import Rows, Sequence

INTERACTION, LINKED, NEIGHBOUR = range(3)
Edge = tuple[int, int, int]


class SubgraphTransform(TableTransform):
    """Subgraph of GreaseLM (Zhang et al., arXiv:2201.08860): a stream of nodes with `entity_ids` and `kind` (0 the
    interaction node, 1 a linked entity, 2 a neighbour), bound to the first token, and a stream of edges. An edge has
    the nodes that it leaves (`token`) and enters (`last`), and its `relation`: 0 of the interaction node, 1 + r of a
    triple, 1 + `relations` + r of a triple backwards.

    Mentions are left out as by `kg.entity_stream`, and so are neighbours without a vector.

    Args:
        graph: a triples corpus, or a graph store.
        table: the file of entity vectors that embeds the nodes, or the rows by entity.
        relations: as of the layer `kg.grease`.
        most: neighbours of a linked entity, the first of the graph.
        nodes: most nodes of a sequence, linked entities first.
        min_score: of mentions with a linker's score, those above it count.
        tokens: the stream whose mentions are read.
        stream, edges: the streams that are made.
        control: the recipe's; `no-kg` leaves the interaction node alone, `mentions-only` linked entities that all have
            one vector, `shuffled-kg` and `permuted-kg` the edges of false triples.

    Raises:
        WorkbenchError: the graph has more relations.
    """

    controls = ("no-kg", "mentions-only", *FALSE_FACTS)
    unaffected_by = ()

    def __init__(
        self,
        graph: Location | GraphStore,
        table: Location | Mapping[Name, CountOrZero],
        relations: Size,
        most: Count = 8,
        nodes: Count = 200,
        min_score: Share = 0.0,
        tokens: Word = "text",
        stream: Word = "node",
        edges: Word = "edge",
        control: Name | None = None,
        seed: Seed = 0,
    ) -> None:
        super().__init__(table, min_score, control)
        store = graph if isinstance(graph, GraphStore) else GraphStore.open(graph)
        self.graph = store.under(control, seed) if control in FALSE_FACTS else store
        if store.num_relations > relations:
            raise WorkbenchError(
                f"the graph {store.path} has {store.num_relations} relations and relations = {relations}; set this "
                "number of the transform kg.subgraph and of the layer kg.grease to at least the graph's"
            )
        self.relations, self.most, self.nodes = relations, most, nodes
        self.tokens, self.stream, self.edges = tokens, stream, edges
        self.entity_stream = stream

    def add(self, sequence: Sequence) -> None:
        """The nodes and the edges of a sequence."""
        rows: dict[str, int] = {}
        for span in sequence.spans_of(self.tokens) if self.linked else ():
            row = self.row_of(span, sequence)
            if row is not None and len(rows) < self.nodes - 1:
                rows[span.entity] = row
        kinds, edges = [INTERACTION, *[LINKED] * len(rows)], list[Edge]()
        for number in range(1, len(rows) + 1):
            edges += [(0, number, 0), (number, 0, 0)]
        self.used["mentions"] += len(rows)
        if not self.alike:
            for entity in list(rows):
                self._expand(entity, rows, kinds, edges)
        self.used["edges"] += len(edges)
        ids = np.array([0, *(row + 1 for row in rows.values())], np.int64)
        first = np.full(len(ids), 0 if sequence.length(self.tokens) else -1)  # the row that the layer exchanges
        sequence.streams[self.stream] = {
            "entity_ids": ids,
            "kind": np.array(kinds, np.int64),
            "of": Rows(self.tokens, first, bound=True),
        }
        source, target, relation = np.array(list(dict.fromkeys(edges)), np.int64).reshape(-1, 3).T
        ends = {"token": Rows(self.stream, source, bound=True), "last": Rows(self.stream, target, bound=True)}
        sequence.streams[self.edges] = {**ends, "relation": relation.copy()}

    def _expand(self, entity: str, rows: dict[str, int], kinds: list[int], edges: list[Edge]) -> None:
        """Add the first neighbours of an entity, and its edges to nodes that are there."""
        numbers, found = {name: number for number, name in enumerate(rows, 1)}, 0
        for fact in self.graph.facts(entity, "both"):
            if fact.other not in numbers:
                row = self.rows.get(fact.other)
                if row is None or found == self.most or len(kinds) == self.nodes:
                    continue
                found += 1
                numbers[fact.other], rows[fact.other] = len(kinds), row
                kinds.append(NEIGHBOUR)
            head, tail = numbers[entity], numbers[fact.other]
            head, tail = (tail, head) if fact.incoming else (head, tail)
            number = self.graph.relation_row(fact.relation)
            edges += [(head, tail, 1 + number), (tail, head, 1 + self.relations + number)]
