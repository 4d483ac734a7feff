"""Base of the transforms that add knowledge of the entities linked to a text."""

from __future__ import annotations

from typing import Any

import numpy as np

from kg.graph.shuffle import FALSE_FACTS
from kg.sequences.branches import BranchMaker, BranchOptions, Graph
from workbench.sequences.entities import Entities
from workbench.sequences.protocols import CountingTransform
from workbench.sequences.sequence import Fields
from workbench.text.tokenizer import Tokenizer


class LinkedTransform(CountingTransform):
    """Base of such a transform, which reads linked entities and counts."""

    controls: tuple[str, ...] = ("no-kg",)
    reads_spans = True


class TripleTransform(LinkedTransform):
    """Base of such a transform that reads triples of a graph as text. Under `no-kg` it has none.

    Args:
        end: as of `BranchMaker`.
    """

    controls = ("no-kg", *FALSE_FACTS, "random-entities", "mentions-only")

    def __init__(
        self,
        graph: str | Graph,
        tokenizer: Tokenizer,
        triples: BranchOptions | None,
        control: str | None,
        seed: int,
        end: str | None = None,
    ) -> None:
        super().__init__()
        triples = triples or BranchOptions()
        self.branches = None
        if control != "no-kg":
            blank = tokenizer.id("mask") if control == "mentions-only" else None
            self.branches = BranchMaker(_open(graph, control, seed, triples), tokenizer, triples, blank, end)
        self.drawn = triples.sampling == "random"

    def known_entities(self) -> Entities | None:
        from kg.graph.permutation import PermutedGraph
        from kg.graph.store import GraphStore

        graph = None if self.branches is None else self.branches.graph
        graph = graph.graph if isinstance(graph, PermutedGraph) else graph
        return Entities(str(graph.path), graph.ids, graph.space) if isinstance(graph, GraphStore) else None

    def facts_of(self, entity: str) -> list[str]:
        return [] if self.branches is None else self.branches.texts_of(entity)


def mention_at(text: Fields, rows: np.ndarray) -> dict[str, Any]:
    """The `mention` at rows of a text: [start, end] in characters, `of` the `second` text where it is in that one."""
    rows = rows[text["char_start"][rows] >= 0]
    place = [int(text["char_start"][rows[0]]), int(text["char_end"][rows[-1]])] if len(rows) else [-1, -1]
    return {"mention": place} | ({"of": "second"} if len(rows) and text["token_type_ids"][rows[0]] else {})


def visibility_at(text: Fields, rows: np.ndarray) -> Fields:
    """The visibility integers of rows of a text, for rows of another stream that are seen as these."""
    return {name: text[name][rows] for name in ("doc", "rank", "until") if name in text}


def _open(graph: str | Graph, control: str | None, seed: int, triples: BranchOptions) -> Graph:
    """The graph that a control leaves.

    Raises:
        WorkbenchError: there is no graph, or it lacks one of the relations.
    """
    from kg.graph.permutation import PermutedGraph
    from kg.graph.store import GraphStore

    store: Any = graph
    if isinstance(graph, str):
        store = GraphStore.open(graph)
        for relation in triples.relations or ():
            store.relation_row(relation)
    if not isinstance(store, GraphStore):
        return store.under(control, seed) if control in TripleTransform.controls else store
    if control == "random-entities":
        return PermutedGraph(store, triples.direction, seed)
    if control == "mentions-only":  # the tokens of the branches are hidden where they are made
        store.report_blank(control, seed)
        return store
    return store.under(control, seed)
