"""A triple as text: [CLS] head [SEP] relation [SEP] tail [SEP] (KG-BERT, arXiv:1909.03193).

Head and tail have segment 0, the relation segment 1, as in KG-BERT.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from workbench.keyed import Draws
from workbench.options.bounds import Count
from workbench.sequences.builder import CUT_SPAN, TRUNCATED, Builder, sequence_of
from workbench.sequences.layout import Visibility
from workbench.sequences.missing import missing
from workbench.sequences.sequence import Sample, Sequence, Span
from workbench.text.tokenizer import Encoded, Tokenizer


class Triple(Builder):
    """Triples of a graph; each triple is an item. Head and tail are `spans` with their entity's id.

    Args:
        head: the head's text: its `label`, or its label and `description`.
        visibility: which tokens each one sees: all (`bidirectional`), those up to itself (`causal`), itself and those
            after it (`anticausal`), or in the tail those up to itself and in head and relation these two (`prefix`).
    """

    unit = "triples"

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: Count,
        head: Literal["label", "description"] = "label",
        visibility: Visibility = "bidirectional",
    ) -> None:
        super().__init__(tokenizer, max_length, segments=3, visibility=visibility)
        self.head = head

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        triples = [(s, part, triple) for s in samples for part, triple in enumerate(_triples(s))]
        texts = [t for s, _, triple in triples for t in (*self._head(s), triple["relation_text"], triple["tail_text"])]
        encoded = self.tokenizer.encode_batch(texts)
        return [self._sequence(*triple, encoded[4 * i : 4 * i + 4]) for i, triple in enumerate(triples)]

    def _head(self, sample: Sample) -> tuple[str, str]:
        """The label, and what follows it."""
        label = str(sample.get("label") or sample.get("id") or "")
        return label, str(sample.get("description") or "") if self.head == "description" else ""

    def _sequence(self, sample: Sample, part: int, triple: dict[str, Any], encoded: list[Encoded]) -> Sequence:
        label, description, relation, tail = encoded
        segments = [_joined(label, description), relation, tail]
        sizes = self._sizes([len(s) for s in segments])
        kept = [segment.part(0, size) for segment, size in zip(segments, sizes, strict=True)]
        stream, rows = self.frame.lay(kept, (0, 1, 0))
        ends = (len(label), 0, len(tail))
        spans = []
        for i, entity in ((0, sample.get("id")), (2, triple.get("tail"))):
            if entity is None or not ends[i]:
                continue
            if ends[i] <= sizes[i]:
                spans.append(Span(rows[i], rows[i] + ends[i], str(entity)))
            else:
                self.dropped[CUT_SPAN] += 1
        ids = {"head": sample.get("id"), "relation": triple.get("relation"), "tail": triple.get("tail")}
        return sequence_of(sample, {"text": stream}, part, spans, meta=ids)

    def _sizes(self, lengths: list[int]) -> list[int]:
        """Tokens kept of each segment: the longest is cut, at its end, until all fit."""
        sizes = list(lengths)
        excess = sum(sizes) - self.capacity
        if excess > 0:
            self.dropped[TRUNCATED] += excess
        for _ in range(excess):
            sizes[int(np.argmax(sizes))] -= 1
        return sizes


def _joined(first: Encoded, second: Encoded) -> Encoded:
    """Two texts as one segment. Character offsets of the second are none: it is another text."""
    nowhere = np.full(len(second), -1)
    words = np.where(second.words < 0, -1, second.words + int(first.words.max(initial=-1)) + 1)
    columns = ((first.ids, second.ids), (first.words, words), (first.starts, nowhere), (first.ends, nowhere))
    return Encoded(*(np.concatenate(pair) for pair in columns))


def _triples(sample: Sample) -> list[dict[str, Any]]:
    triples = sample.get("triples")
    if not triples:
        raise missing(sample, "triples")
    return list(triples)
