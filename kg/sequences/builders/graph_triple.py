"""A triple as text, by the texts that a graph has: [CLS] head [SEP] relation [SEP] tail [SEP].

Yao et al., "KG-BERT: BERT for Knowledge Graph Completion" (arXiv 1909.03193), section 3: head and tail have segment 0,
the relation segment 1. Relation prediction reads [CLS] head [SEP] tail [SEP] with segments 0 and 1.
"""

from __future__ import annotations

from typing import Any, Literal

from kg.graph.stated_triples import StatedTriples
from kg.graph.store import GraphStore
from workbench.core.errors import unknown
from workbench.core.options.bounds import Count, Location, Name, Seed
from workbench.sequences.sequence import Sample
from workbench.sequences.text_layout import Visibility
from workbench.sequences.triple_text import TripleElement, TripleText
from workbench.text.tokenizer import Tokenizer


class GraphTripleBuilder(StatedTriples, TripleText):
    """A triple as text, with the texts of a graph: [CLS] head [SEP] relation [SEP] tail [SEP] (KG-BERT,
    arXiv:1909.03193). Each triple is an item. An entity has the same text as a head, a tail and a wrong answer.

    Args:
        graph: a triples corpus, or a graph store, that describes every entity.
        text: of an entity: its `label` (its id where it has none), or its label and `description`.
        relation: whether the relation is a segment.
        visibility: as for the core's builder `triple`.
        control: the recipe's; `shuffled-kg` and `permuted-kg` have the tails of `graph.under(control, seed)`.

    Raises:
        WorkbenchError: descriptions are to be read and the graph has none, or a triple names an entity that it does
            not hold.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: Count,
        graph: Location | GraphStore,
        text: Literal["label", "description"] = "label",
        relation: bool = True,
        visibility: Visibility = "bidirectional",
        control: Name | None = None,
        seed: Seed = 0,
    ) -> None:
        self.types = (0, 1, 0) if relation else (0, 1)
        super().__init__(tokenizer, max_length, segments=len(self.types), visibility=visibility)
        self.open_graph(graph, control, seed)
        if text == "description":
            self.graph.check_described()
        self.text = text
        self.relation = relation

    def parts(self, sample: Sample, triple: dict[str, Any]) -> list[TripleElement]:
        if triple["tail"] is None:
            return self._asked(str(sample["id"]), str(triple["relation"]))
        ((known, relation, answer),) = self.stated_triples({**sample, "triples": [triple]})
        head, tail = self._entity(known), self._entity(answer)
        if not self.relation:
            return [head, tail]
        return [head, TripleElement(self.graph.relation_label(relation)), tail]

    def _asked(self, head: str, relation: str) -> list[TripleElement]:
        """A head and a relation, by their ids or their names, before an empty tail. The head may be any text.

        Raises:
            WorkbenchError: the graph does not have the relation.
        """
        known = self._entity(head) if head in self.graph else TripleElement(head)
        if not self.relation:
            return [known, TripleElement("")]
        names = [self.graph.relation_label(each) for each in self.graph.relation_ids]
        named = self.graph.relation_label(relation) if self.graph.relation_ids.find(relation) >= 0 else relation
        if named not in names:
            raise unknown("relation", relation, names, f"the graph {self.graph.path}")
        return [known, TripleElement(named), TripleElement("")]

    def _entity(self, entity: str) -> TripleElement:
        row = self.graph.row(entity)
        more = self.graph.texts_of(row).get("description", "") if self.text == "description" else ""
        return TripleElement(self.graph.label_of(row) or entity, more, entity)
