"""Which relation holds between two entities? (KG-BERT, arXiv 1909.03193, equations 3 and 4.)

With p the pooled output of head and tail as text, the relation is the class of softmax(W p + b).
"""

from __future__ import annotations

from kg.graph.store import GraphStore
from workbench.errors import unknown
from workbench.objectives.classify import OTHER_SET, Classify
from workbench.options.bounds import Dropout, Location, Word
from workbench.sequences.sequence import Sequence


class RelationPrediction(Classify):
    """The relation of a triple, among those of the graph; its builder must leave the relation out.

    Args:
        graph: a triples corpus, or a graph store, whose relations are the classes.
        stream, dropout: as for `classify`.
    """

    reads = ("triples",)

    def __init__(self, graph: Location | GraphStore, stream: Word = "text", dropout: Dropout = 0.1) -> None:
        store = graph if isinstance(graph, GraphStore) else GraphStore.open(graph)
        super().__init__(list(store.relation_ids), "relation", stream, dropout)

    def row(self, sequence: Sequence) -> int:
        name = str(sequence.meta.get("relation"))
        if name not in self.classes:
            where = f"the triple of sequence {sequence.key!r}"
            raise unknown("relation", name, self.classes, where, advice=OTHER_SET)
        return self.classes[name]
