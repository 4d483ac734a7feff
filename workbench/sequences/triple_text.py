"""The base of builders of triples: a segment for each element of a triple, cut where they are too long together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from workbench.core.errors import WorkbenchError, shown
from workbench.core.keyed import Draws
from workbench.sequences.builder import CUT_SPAN, TRUNCATED, Builder, sample_text, sequence_of
from workbench.sequences.missing_fields import missing
from workbench.sequences.sequence import Sample, Sequence, Span
from workbench.text.tokenizer import Encoding


class TripleElement(NamedTuple):
    """An element of a triple as text: its name, its description, and its id where it is an entity."""

    text: str
    more: str = ""
    entity: str | None = None


class TripleText(Builder, ABC):
    """Base of the builders of triples. Each triple is an item with a segment for each element, with its segment type.

    A subclass defines the `parts` of a triple. Entities are `spans` of their names. A triple without a tail (None) is a
    question: its last segment is empty.
    """

    unit = "triples"
    types: tuple[int, ...] = (0, 1, 0)

    @abstractmethod
    def parts(self, sample: Sample, triple: dict[str, Any]) -> list[TripleElement]:
        """The elements of a triple, one for each of `types`."""

    def question(self, sample: Sample) -> Sample:
        """The sample whose triple has everything but the tail, from a text: head, tab, relation.

        Raises:
            WorkbenchError: the text has fewer or more columns.
        """
        names = ("head", "relation")[: len(self.types) - 1]
        given = [column.strip() for column in sample_text(sample).split("\t")]
        if len(given) != len(names) or not all(given):
            raise WorkbenchError(
                f"input {sample['key']!r} is {shown(sample['text'])}; allowed: the {' and the '.join(names)} of a "
                "triple, separated by a tab"
            )
        return {**sample, "id": given[0], "triples": [{"relation": given[-1], "tail": None}]}

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        triples = [(s, number, triple) for s in samples for number, triple in enumerate(_triples(s))]
        separated = [self.parts(sample, triple) for sample, _, triple in triples]
        encoded = iter(self.tokenizer.encode_batch([text for parts in separated for p in parts for text in p[:2]]))
        return [
            self._sequence(*triple, parts, [(next(encoded), next(encoded)) for _ in parts])
            for triple, parts in zip(triples, separated, strict=True)
        ]

    def _sequence(
        self,
        sample: Sample,
        number: int,
        triple: dict[str, Any],
        parts: list[TripleElement],
        encoded: list[tuple[Encoding, Encoding]],
    ) -> Sequence:
        segments = [_joined(text, more) for text, more in encoded]
        sizes = self._sizes([len(s) for s in segments])
        kept = [segment.part(0, size) for segment, size in zip(segments, sizes, strict=True)]
        stream, rows = self.frame.lay(kept, self.types)
        spans = []
        for part, (text, _), size, row in zip(parts, encoded, sizes, rows, strict=True):
            if part.entity is None or not len(text):
                continue
            if len(text) <= size:
                spans.append(Span(row, row + len(text), part.entity))
            else:
                self.dropped[CUT_SPAN] += 1
        ids = {"head": sample.get("id"), "relation": triple.get("relation"), "tail": triple.get("tail")}
        return sequence_of(sample, {"text": stream}, number, spans, meta=ids)

    def _sizes(self, lengths: list[int]) -> list[int]:
        """The numbers of tokens kept of each segment: the longest is cut, at its end, until all fit."""
        sizes = list(lengths)
        excess = sum(sizes) - self.capacity
        if excess > 0:
            self.dropped[TRUNCATED] += excess
        for _ in range(excess):
            sizes[int(np.argmax(sizes))] -= 1
        return sizes


def _joined(first: Encoding, second: Encoding) -> Encoding:
    """Two texts as one segment. Character offsets of the second are none: it is another text."""
    nowhere = np.full(len(second), -1)
    words, others = ((each.words if each.segmenter else each.pretokens) for each in (first, second))
    others = np.where(others < 0, -1, others + int(words.max(initial=-1)) + 1)
    columns = ((first.ids, second.ids), (words, others), (first.starts, nowhere), (first.ends, nowhere))
    ids, words, starts, ends = (np.concatenate(pair) for pair in columns)
    return Encoding(ids, words, starts, ends)


def _triples(sample: Sample) -> list[dict[str, Any]]:
    triples = sample.get("triples")
    if not triples:
        raise missing(sample, "triples")
    return list(triples)
