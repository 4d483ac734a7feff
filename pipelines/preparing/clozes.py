"""The reader of a graph's triples as cloze sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from kg.evaluation.facts.clozes import Range, Triple, candidates_of, cloze
from kg.graph.builder import META
from kg.graph.store import GraphStore
from pipelines.readers.reader import Drop, RawReader, Record
from pipelines.sources.files import record_key
from pipelines.sources.triple_lines import read_triples
from workbench.sequences.sequence import Sample


@dataclass(frozen=True)
class ClozeReader(RawReader):
    """A cloze sentence for each triple; triples without a sentence are dropped.

    Args:
        graph: a graph store, or a triples corpus.
        templates: (relation, its sentence).
        triples: a file of the triples that become sentences; None: the graph's.
        known: files of more true triples; `meta.known` has all objects in them and in the graph.
        candidates: the candidates of an object (`kg.evaluation.facts.clozes.candidates_of`).
        most: most facts of a relation, drawn with `seed`.
    """

    graph: str
    templates: tuple[tuple[str, str], ...]
    triples: str | None = None
    known: tuple[str, ...] = ()
    candidates: Range = "objects"
    most: int | None = None
    seed: int = 0

    @property
    def asked(self) -> list[Triple]:
        """The triples of the relations."""
        return _material(self).asked

    @property
    def listed(self) -> dict[str, list[dict[str, Any]]]:
        """The candidates by relation, in the layout of their file."""
        return _material(self).listed

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        return [_material(self).store.path / META, *paths]

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        for relation, _ in self.templates:
            for triple in self._triples(relation):
                yield Record(triple, sum(map(len, triple)), "-".join(triple))

    def sample(self, record: Record) -> Sample | Drop:
        head, relation, tail = triple = record.data
        material = _material(self)
        store = material.store
        if head not in store or tail not in store:
            return Drop("entity that the graph lacks")
        labels = store.name_of(head), store.name_of(tail)
        if not all(labels):
            return Drop("entity without a label")
        sample = cloze(dict(self.templates)[relation], triple, labels)
        objects = {other for name, other in store.neighbours(head) if name == relation}
        sample["meta"]["known"] = sorted(objects | material.alongside[head, relation])
        return {"key": record_key("-".join(triple)), **sample}

    def _triples(self, relation: str) -> list[Triple]:
        store = _material(self).store
        if self.triples is not None:
            found = [triple for triple in self.asked if triple[1] == relation]
        else:
            rows = store.triple_rows
            rows = rows[rows[:, 1] == store.relation_row(relation)]
            found = [(store.ids[h], relation, store.ids[t]) for h, _, t in rows.tolist()]
        if self.most is None or len(found) <= self.most:
            return found
        drawn = np.random.default_rng([self.seed, store.relation_row(relation)])
        return [found[i] for i in np.sort(drawn.choice(len(found), self.most, replace=False)).tolist()]


class _Material:
    """The files of a reader, opened once in each process."""

    def __init__(self, reader: ClozeReader) -> None:
        self.reader = reader
        self.store = GraphStore.open(reader.graph)
        relations = {relation for relation, _ in reader.templates}
        files = [[] if place is None else read_triples(Path(place)) for place in (reader.triples, *reader.known)]
        self.asked, *known = [[each for each in triples if each[1] in relations] for triples in files]
        self.others = [*self.asked, *(each for triples in known for each in triples)]

    @cached_property
    def listed(self) -> dict[str, list[dict[str, Any]]]:
        relations = [relation for relation, _ in self.reader.templates]
        return candidates_of(self.store, relations, self.reader.candidates, self.others)

    @cached_property
    def alongside(self) -> defaultdict[tuple[str, str], set[str]]:
        """(head, relation) -> the objects that the graph lacks."""
        found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for head, relation, tail in self.others:
            found[head, relation].add(tail)
        return found


_material = lru_cache(maxsize=2)(_Material)
