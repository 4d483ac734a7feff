"""The knowledge graph: triples and texts as arrays on disk, memory-mapped.

A graph of millions of triples opens in milliseconds, costs no memory that the system cannot take back, and is shared
by all workers of a machine. Triples are (h, r, t). The arrays, in rows of the tables of ids:

    triples      int32 [3, triples]     heads, relations, tails; sorted by head, in the order they came within a head
    out_offsets  int64 [entities + 1]   triples of head e: [out_offsets[e], out_offsets[e + 1])
    in_order     int   [triples]        the triples sorted by tail
    in_offsets   int64 [entities + 1]   triples of tail e: in_order[in_offsets[e] : in_offsets[e + 1]]
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import networkx
import numpy as np

from kg.graph.builder import META, GraphBuilder, Texts, by_tail, texts_by_id
from kg.graph.entity_facts import Direction, EntityFacts
from kg.graph.patterns import RemainingPatterns, remaining_patterns, report_remaining
from kg.graph.shuffle import FALSE_FACTS
from kg.graph.space import fingerprint, namespace_of
from kg.graph.strings import open_array, open_strings
from workbench.components.build_context import note
from workbench.core.errors import WorkbenchError, unknown
from workbench.core.files.checksums import open_sealed
from workbench.core.files.stores import path_at
from workbench.corpora.manifest import FILE_NAME
from workbench.corpora.opened_manifests import manifest_at
from workbench.sequences.entities import IdSpace
from workbench.sequences.missing_fields import how_to_prepare

Pairs = list[tuple[str, str]]
IN_CORPUS = "graph"
TO_DO = {
    "no-kg": "read nothing of a graph",
    "mentions-only": "show the same, such as mask tokens, in place of whatever the graph says",
    "random-entities": (
        "read `kg.graph.permutation.PermutedGraph(graph, direction, seed)` in its place, whose `facts` are those of "
        "another entity"
    ),
}
"""Instructions for components that read a graph, by control. These controls are not made by exchanging tails."""
"""The folder of a triples corpus where `workbench prepare triples` builds its graph."""


class GraphStore:
    """A knowledge graph on disk. Pickles as its path: a worker that gets one opens it again.

    About an entity that it does not hold, a graph knows nothing: `neighbours` and `incoming` are empty, `has` is
    false. To ask for such an entity's texts or row is an error.
    """

    def __init__(self, path: str | Path) -> None:
        """Raises WorkbenchError: there is no graph at `path`, or it is damaged or of another version."""
        self.path = Path(path)
        self.meta = open_sealed(
            self.path,
            META,
            missing=f"there is no graph store at {self.path} (no {META}); {_how_to_build(self.path)}",
            again="build the graph again (the command that made it does, and `workbench prepare graph CORPUS --build`)",
        )
        note("graph", path, self.identity)
        self.control: str | None = None  # of a graph of false facts
        self.seed: int | None = None
        self.true_share = 1.0
        self.left: RemainingPatterns | None = None
        self.ids = open_strings(self.path, "entity_ids")
        self.relation_ids = open_strings(self.path, "relation_ids")
        self._labels = open_strings(self.path, "labels")
        self._texts = open_strings(self.path, "texts")
        self._relation_labels = open_strings(self.path, "relation_labels")
        self._heads, self._relations, self._tails = open_array(self.path, "triples")
        self._out_offsets = open_array(self.path, "out_offsets")
        self._in_order = open_array(self.path, "in_order")
        self._in_offsets = open_array(self.path, "in_offsets")

    @classmethod
    def build(
        cls,
        triples: Iterable[tuple[str, str, str]],
        path: str | Path,
        *,
        entity_texts: Texts = (),
        relation_labels: Mapping[str, str] | None = None,
    ) -> GraphStore:
        """Write a graph to the new folder `path`; nothing is left there when it fails. Duplicate triples count once.

        Memory: some 100 bytes an entity; triples and texts are streamed (`kg.graph.links`).

        Args:
            triples: (head id, relation id, tail id), read once.
            entity_texts: rows with id and label, aliases, description, types (a mapping has the ids as its keys).
                Entities that no triple mentions are kept too.
            relation_labels: label by relation id.

        Raises:
            WorkbenchError: `path` exists, a triple is not three non-empty strings, an entity is described twice.
        """
        with GraphBuilder(Path(path)) as builder:
            for triple in triples:
                builder.add_triple(triple)
            for entity, row in texts_by_id(entity_texts):
                builder.add_texts(entity, row)
            builder.finish(relation_labels or {})
        return cls(path)

    @classmethod
    def from_records(
        cls, records: Iterable[Mapping[str, Any]], path: str | Path, *, words: bool = False, namespace: str = ""
    ) -> GraphStore:
        """Write the graph of a triples corpus: each record is a head entity with its texts and its triples.

        An entity that is only a tail has the label that the triples give it.

        Args:
            words: whether ids are words, so that what has no label lacks none.
            namespace: whose the ids are, where other graphs have the same; by default as they look.

        Raises:
            WorkbenchError: as for `build`.
        """
        with GraphBuilder(Path(path)) as builder:
            relation_labels: dict[str, str] = {}
            for record in records:
                for fact in record["triples"]:
                    builder.add_triple((record["id"], fact["relation"], fact["tail"]))
                    if fact.get("relation_text"):
                        relation_labels[fact["relation"]] = fact["relation_text"]
                    if fact.get("tail_text"):
                        builder.add_tail_label(fact["tail"], fact["tail_text"])
                builder.add_texts(record["id"], record)
            builder.finish(relation_labels, words=words, namespace=namespace)
        return cls(path)

    @classmethod
    def open(cls, path: str | Path) -> GraphStore:
        """The graph at `path`, or that of the triples corpus at `path`: its folder `graph`. One at a URL is fetched.

        Takes milliseconds whatever its size, once its files were found to be intact.
        """
        path = path_at(path)
        inner = path / IN_CORPUS
        return cls(inner if (inner / META).is_file() and not (Path(path) / META).is_file() else path)

    @property
    def identity(self) -> str:
        """A checksum of everything in the graph."""
        return str(self.meta["digest"])

    @cached_property
    def space(self) -> IdSpace:
        """The namespace of its ids; detected for a graph without a noted namespace."""
        noted = self.meta.get("space") or {
            "namespace": namespace_of(self.ids, bool(self.meta.get("words") or not self.meta["labels"])),
            "entities": fingerprint(zip(self.ids, self._labels, strict=True)),
        }
        folder = self.path.resolve()
        name = folder.parent.name if folder.name == IN_CORPUS else folder.name
        return IdSpace(name, noted["namespace"], noted["entities"])

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (str(self.path), self.control, self.seed, self.identity)

    @property
    def num_entities(self) -> int:
        return len(self.ids)

    @property
    def num_relations(self) -> int:
        return len(self.relation_ids)

    @property
    def num_triples(self) -> int:
        return len(self._heads)

    def __contains__(self, entity: object) -> bool:
        return entity in self.ids

    def row(self, entity: str) -> int:
        """The row of an entity.

        Raises:
            WorkbenchError: the graph does not hold it.
        """
        row = self.ids.find(entity)
        if row < 0:
            raise WorkbenchError(
                f"the graph {self.path} has no entity {entity!r}; ids look like {', '.join(map(repr, self.ids[:3]))}"
            )
        return row

    def relation_row(self, relation: str) -> int:
        """The row of a relation.

        Raises:
            WorkbenchError: the graph does not hold it.
        """
        row = self.relation_ids.find(relation)
        if row < 0:
            raise unknown("relation", relation, self._relation_names, str(self.path))
        return row

    def neighbours(self, entity: str) -> Pairs:
        """The (relation, tail) pairs whose head is the entity, in the order in which they were given."""
        row = self.ids.find(entity)
        if row < 0:
            return []
        lo, hi = self._out_offsets[row], self._out_offsets[row + 1]
        return self._pairs(self._relations[lo:hi], self._tails[lo:hi])

    def incoming(self, entity: str) -> Pairs:
        """The (relation, head) pairs whose tail is the entity."""
        row = self.ids.find(entity)
        if row < 0:
            return []
        of_tail = self._in_order[self._in_offsets[row] : self._in_offsets[row + 1]]
        return self._pairs(self._relations[of_tail], self._heads[of_tail])

    def facts(self, entity: str, direction: Direction = "out", relations: Iterable[str] | None = None) -> EntityFacts:
        """The triples with the entity as head, as tail or both, in the graph's order; of these relations alone.

        Raises:
            WorkbenchError: the graph has no such relation.
        """
        row = self.ids.find(entity)
        out = slice(*self._out_offsets[row : row + 2]) if row >= 0 and direction != "in" else slice(0)
        of_tail = self._in_order[
            slice(*self._in_offsets[row : row + 2]) if row >= 0 and direction != "out" else slice(0)
        ]
        rows, others = self._relations[out], self._tails[out]
        outgoing = len(rows)
        if len(of_tail):
            rows = np.concatenate([rows, self._relations[of_tail]])
            others = np.concatenate([others, self._heads[of_tail]])
        found = EntityFacts(self.ids, self._relation_names, rows, others, outgoing)
        return found if relations is None else found.of([self.relation_row(name) for name in relations])

    def neighbour_rows(self, row: int) -> np.ndarray:
        """Rows of the entities on either side of an entity's triples, with repetitions."""
        of_tail = self._in_order[self._in_offsets[row] : self._in_offsets[row + 1]]
        return np.concatenate([self._tails[self._out_offsets[row] : self._out_offsets[row + 1]], self._heads[of_tail]])

    def has(self, head: str, relation: str, tail: str) -> bool:
        """Whether the triple is in the graph."""
        h, r, t = self.ids.find(head), self.relation_ids.find(relation), self.ids.find(tail)
        if min(h, r, t) < 0:
            return False
        lo, hi = self._out_offsets[h], self._out_offsets[h + 1]
        start, stop = self._in_offsets[t], self._in_offsets[t + 1]
        if hi - lo <= stop - start:  # the shorter of the two lists
            return bool(np.any((self._relations[lo:hi] == r) & (self._tails[lo:hi] == t)))
        of_tail = self._in_order[start:stop]
        return bool(np.any((self._relations[of_tail] == r) & (self._heads[of_tail] == h)))

    @property
    def triple_rows(self) -> np.ndarray:
        """All triples as rows of `ids`, `relation_ids` and `ids`: [triples, 3] int32."""
        return np.stack([self._heads, self._relations, self._tails], axis=1)

    def triples(self) -> Iterator[tuple[str, str, str]]:
        """All triples as ids, sorted by head."""
        for lo in range(0, self.num_triples, 65_536):
            part = slice(lo, lo + 65_536)
            rows = zip(
                self._heads[part].tolist(), self._relations[part].tolist(), self._tails[part].tolist(), strict=True
            )
            for h, r, t in rows:
                yield self.ids[h], self._relation_names[r], self.ids[t]

    @property
    def degrees(self) -> np.ndarray:
        """Triples that an entity is part of, as head and as tail: [entities] int64."""
        return np.diff(self._out_offsets) + np.diff(self._in_offsets)

    def degrees_of(self, row: int) -> tuple[int, int]:
        """Triples of the entity in a row, as head and as tail."""
        out, into = (offsets[row + 1] - offsets[row] for offsets in (self._out_offsets, self._in_offsets))
        return int(out), int(into)

    def label(self, name: str) -> str:
        """The readable name of an entity or a relation; its id where the graph has no label.

        Raises:
            WorkbenchError: the graph holds neither an entity nor a relation of that id.
        """
        row = self.ids.find(name)
        relation = self.relation_ids.find(name)
        if row < 0 and relation < 0:
            self.row(name)
        label = self._labels[row] if row >= 0 else ""
        return label or (self._relation_labels[relation] if relation >= 0 else "") or name

    def name_of(self, entity: str) -> str:
        """The name of an entity: its label, or empty if it has none. In a graph without any label it is the id.

        A graph without labels has words for ids (WordNet's), and so has one that says it (HowNet's); in others an id is
        no word (Wikidata's).

        Raises:
            WorkbenchError: the graph does not hold it.
        """
        has_words = self.meta.get("words") or not self.meta["labels"]
        return self._labels[self.row(entity)] or (entity if has_words else "")

    def aliases(self, entity: str) -> list[str]:
        """Other names of an entity."""
        return self.texts_of(self.row(entity)).get("aliases", [])

    def description(self, entity: str) -> str:
        """The description of an entity; empty if it has none."""
        return self.texts_of(self.row(entity)).get("description", "")

    def check_described(self) -> None:
        """Raises WorkbenchError: nothing is written about any entity."""
        if not self.meta["descriptions"]:
            raise WorkbenchError(
                f"the graph {self.path} describes none of its {self.num_entities:,} entities, and the recipe's "
                f"components read descriptions. Prepare it: {how_to_prepare('description')}"
            )

    def text_of(self, entity: str) -> str:
        """The description of an entity, or else its name (`name_of`); empty if it has neither."""
        return self.description(entity) or self.name_of(entity)

    def types(self, entity: str) -> list[str]:
        """The ids of an entity's types."""
        return self.texts_of(self.row(entity)).get("types", [])

    def label_of(self, row: int) -> str:
        """The label of the entity in a row; empty where the graph has none."""
        return self._labels[row]

    def texts_of(self, row: int) -> dict[str, Any]:
        """Aliases, description and types of the entity in a row, those it has."""
        text = self._texts[row]
        return json.loads(text) if text else {}

    def subgraph(self, entities: Iterable[str], hops: int = 1, limit: int | None = None) -> networkx.MultiDiGraph:
        """The subgraph within `hops` triples of some entities, in both directions.

        Nodes and edges carry `label`; an edge's key is its relation. With `limit`, an entity is followed along that
        many of its outgoing triples, and as many incoming ones, at most.

        Raises:
            WorkbenchError: the graph does not hold one of the entities.
        """
        graph = networkx.MultiDiGraph()
        frontier = [entity for entity in dict.fromkeys(entities) if self.row(entity) >= 0]
        seen = set(frontier)
        graph.add_nodes_from((entity, {"label": self.label(entity)}) for entity in frontier)
        for _ in range(hops):
            reached: dict[str, None] = {}
            for entity in frontier:
                out = [(entity, relation, tail) for relation, tail in self.neighbours(entity)[:limit]]
                incoming = [(head, relation, entity) for relation, head in self.incoming(entity)[:limit]]
                for head, relation, tail in (*out, *incoming):
                    graph.add_edge(head, tail, key=relation, label=self.relation_label(relation))
                    reached |= {head: None, tail: None}
            frontier = [entity for entity in reached if entity not in seen]
            seen.update(frontier)
            graph.add_nodes_from((entity, {"label": self.label(entity)}) for entity in frontier)
        return graph

    def relation_label(self, relation: str) -> str:
        """The readable name of a relation; its id where the graph has no label or does not hold it."""
        row = self.relation_ids.find(relation)
        return (self._relation_labels[row] if row >= 0 else "") or relation

    def under(self, control: str | None, seed: int) -> GraphStore:
        """A graph of false facts under the controls shuffled-kg and permuted-kg (`kg.graph.shuffle`); itself under
        those that leave a graph as it is. The texts are the same.

        `true_share` is the share of triples that stay true. This share, and how well a true tail is guessed from the
        false one (`left`), is logged and noted with what was read.

        Raises:
            WorkbenchError: a control that removes facts but has no tails of its own. The component that reads the graph
                must support it.
        """
        if control in TO_DO:
            raise WorkbenchError(
                f"control {control}: no graph of other tails stands for it, and {self.path} itself is the truth; "
                f"{TO_DO[control]}. Allowed here: {', '.join(FALSE_FACTS)}"
            )
        if control not in FALSE_FACTS:
            return self
        view = _false(self.path, control, seed)
        view.left = remaining_patterns(self._relations, self._tails, view._tails)
        report_remaining(control, self.path, self._relation_names, view.left, view.true_share, seed)
        return view

    def report_blank(self, control: str, seed: int) -> None:
        """Note what is left under a control that shows the same in place of every tail: the majority."""
        left = remaining_patterns(self._relations, self._tails, np.zeros_like(self._tails))
        report_remaining(control, self.path, self._relation_names, left, None, seed)

    @cached_property
    def _relation_names(self) -> list[str]:
        return list(self.relation_ids)

    def _pairs(self, relations: np.ndarray, entities: np.ndarray) -> Pairs:
        names, ids = self._relation_names, self.ids
        return [(names[r], ids[e]) for r, e in zip(relations.tolist(), entities.tolist(), strict=True)]


def _how_to_build(path: Path) -> str:
    """The command that makes a graph where there is none."""
    corpus = path.parent if path.name == IN_CORPUS else path
    if (corpus / FILE_NAME).is_file() and manifest_at(corpus / FILE_NAME).kind == "triples":
        return f"`workbench prepare graph {corpus} --build` builds it from this triples corpus"
    return "`workbench prepare triples INPUT --output FOLDER` builds one in FOLDER/graph"


def _reopen(path: str, control: str | None, seed: int | None, identity: str) -> GraphStore:
    """In another process.

    Raises:
        WorkbenchError: another graph lies there by now.
    """
    store = GraphStore(path)
    if store.identity != identity:
        raise WorkbenchError(f"the graph {path} was replaced while it was in use; put it back, or start again")
    return store if control is None or seed is None else _false(path, control, seed)


def _false(path: str | Path, control: str, seed: int) -> GraphStore:
    """The graph with the tails of a control."""
    view = GraphStore(path)
    found = FALSE_FACTS[control](view._heads, view._relations, view._tails, seed)
    view.control, view.seed, view._tails, view.true_share = control, seed, found.tails, found.true_share
    view._in_order, view._in_offsets = by_tail(view._tails, view.num_entities)
    return view
