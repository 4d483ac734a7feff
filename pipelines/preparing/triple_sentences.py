"""The reader of a triples corpus that writes the triples of each entity as texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pipelines.preparing.corpus_reader import CorpusReader
from pipelines.preparing.mentions import graph_at
from pipelines.readers.reader import LEFT_OUT, Drop, Record, RecordPlace
from workbench.sequences.sequence import Sample

Piece = tuple[str, str | None]
"""A stretch of a text, and the entity that it names."""
PLACES = re.compile(r"(\[X\]|\[Y\])")


@dataclass(frozen=True)
class TripleSentenceReader(CorpusReader):
    """A text for every `most` triples of an entity, with its entities in `spans`.

    Args:
        graph: the corpus, which names the entities.
        templates: (relation, its sentence with [X] and [Y]); triples of other relations are dropped. Empty: the
            triples are listed, as in the input of KELM's generator: `head relation tail, relation tail.`
    """

    graph: str
    templates: tuple[tuple[str, str], ...]
    most: int

    def records_from(self, place: RecordPlace) -> Iterator[Record]:
        for record in super().records_from(place):
            sample = super().sample(record)
            for start in () if isinstance(sample, Drop) else range(0, len(sample["triples"]), self.most):
                # without a place: a reader that begins there would yield the first triples of the entity
                yield record._replace(data=(*record.data, start), where=f"{record.where}, triple {start}", place=None)

    def sample(self, record: Record) -> Sample | Drop:
        *data, start = record.data
        sample = super().sample(record._replace(data=tuple(data)))
        if isinstance(sample, Drop):
            return sample
        head = (self._name(sample["id"]), str(sample["id"]))
        if not head[0]:
            return Drop("entity without a label")
        triples = sample["triples"][start : start + self.most]
        dropped = Counter(filter(None, map(self._lack, triples)))
        stated = [triple for triple in triples if self._lack(triple) is None]
        if not stated:
            return Drop(dropped.most_common(1)[0][0], len(triples))
        text, spans = _joined(self._templated(head, stated) if self.templates else self._listed(head, stated))
        meta: dict[str, Any] = {"triples": [[head[1], triple["relation"], triple["tail"]] for triple in stated]}
        meta |= {LEFT_OUT: dict(dropped)} if dropped else {}
        return {"key": f"{sample['key']}-{start}", "text": text, "spans": spans, "meta": meta}

    def _lack(self, triple: dict[str, Any]) -> str | None:
        """Why a triple is dropped."""
        if self.templates and triple["relation"] not in dict(self.templates):
            return "triple of a relation without a template"
        return None if self._name(triple["tail"]) else "triple whose tail has no label"

    def _name(self, entity: str) -> str:
        return graph_at(self.graph).name_of(entity)

    def _templated(self, head: Piece, triples: list[dict[str, Any]]) -> Iterator[Piece]:
        for number, triple in enumerate(triples):
            yield (" " if number else "", None)
            named = {"[X]": head, "[Y]": (self._name(triple["tail"]), triple["tail"])}
            for piece in PLACES.split(dict(self.templates)[triple["relation"]]):
                yield named.get(piece, (piece, None))

    def _listed(self, head: Piece, triples: list[dict[str, Any]]) -> Iterator[Piece]:
        yield head
        for number, triple in enumerate(triples):
            relation = graph_at(self.graph).relation_label(triple["relation"])
            yield (f"{', ' if number else ' '}{relation} ", None)
            yield (self._name(triple["tail"]), triple["tail"])
        yield (".", None)


def _joined(pieces: Iterator[Piece]) -> tuple[str, list[list[Any]]]:
    """The text of the pieces, and its links."""
    text, spans = "", list[list[Any]]()
    for piece, entity in pieces:
        if entity is not None:
            spans.append([len(text), len(text) + len(piece), entity, 1.0])
        text += piece
    return text, spans
