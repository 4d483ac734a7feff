"""ERNIE-THU's entity stream: one row per linked mention, hung on the mention's first token or its marker.

Zhang et al., "ERNIE: Enhanced Language Representation with Informative Entities", ACL 2019 (arXiv 1905.07129).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from kg.sequences.linked_transform import mention_at, visibility_at
from kg.sequences.table_transform import TableTransform
from workbench.core.options.bounds import CountOrZero, Location, Name, Share, Word
from workbench.sequences.marked_text import marker_before
from workbench.sequences.sequence import Fields, Rows, Sequence, Span

NONE = 0  # row 0 of an entity table is the zero vector


class EntityStreamTransform(TableTransform):
    """Entity stream of ERNIE-THU (Zhang et al., arXiv:1905.07129). It has a row for each linked mention, aligned with
    the first token of the mention.

    A span whose entity has no vector, or whose token has an entity already (the longer mention wins), is left out and
    counted (`take_dropped`), and so is a mention in a stretch that `Sequence.mask_spans` names: its vector would reveal
    what is to be predicted.

    Args:
        table: the file of entity vectors (`kg.vectors.vectors`); row r of it is `entity_ids` r + 1, and 0 is the zero
            vector.
        cls_row: puts a row with entity 0 on the first token of every document, as the released code does by forcing its
            entity mask to 1 at [CLS]: that row takes part in the self-attention of the entities.
        min_score: of mentions with a linker's score, those above it count (the released code, in fine-tuning: 0.3 for
            typing, 0.4 for TACRED).
        tokens: the stream whose mentions are read.
        stream: the one that is made.
        control: the recipe's: `no-kg` links no mention; under `mentions-only` all entities have the vector of the
            table's first one.
        link: `marker` links a marked mention to the marker before it, which a head with `read: markers` reads. Other
            mentions keep their first token, as all do in the released code (`first`).
    """

    def __init__(
        self,
        table: Location | Mapping[Name, CountOrZero],
        cls_row: bool = True,
        min_score: Share = 0.0,
        tokens: Word = "text",
        stream: Word = "entity",
        control: Name | None = None,
        link: Literal["first", "marker"] = "first",
    ) -> None:
        super().__init__(table, min_score, control)
        self.cls_row, self.link = cls_row, link
        self.tokens, self.stream = tokens, stream
        self.entity_stream = stream

    def add(self, sequence: Sequence) -> None:
        """The entity stream, possibly of no rows."""
        text = sequence.fields(self.tokens)
        found: dict[int, int] = {}
        for span in sorted(sequence.spans_of(self.tokens) if self.linked else [], key=lambda s: s.start - s.end):
            row = self.row_of(span, sequence)
            if row is None:
                continue
            token = self._token_of(span, sequence)
            if token in found:
                self.dropped["mentions with the same first token"] += 1
            else:
                found[token] = row + 1
        self.used["mentions"] += len(found)
        if self.cls_row:
            for start in _document_starts(text.get("doc"), len(text["input_ids"])):
                found.setdefault(start, NONE)
        tokens = np.array(sorted(found), np.int64)
        entity: Fields = {"entity_ids": np.array([found[t] for t in tokens.tolist()], np.int64)}
        entity["token"] = Rows(self.tokens, tokens, bound=True)
        entity |= visibility_at(text, tokens)
        sequence.streams[self.stream] = entity

    def injected(self, sequence: Sequence) -> list[dict[str, Any]]:
        """The linked entities that have a row."""
        text, own = sequence.fields(self.tokens), sequence.streams[self.stream]
        row_of = dict(zip(np.asarray(own["token"]).tolist(), own["entity_ids"].tolist(), strict=True))
        spans = [(span, self.rows.get(span.entity)) for span in sequence.spans_of(self.tokens)]
        return [
            {**mention_at(text, np.arange(span.start, span.end)), "entity": span.entity}
            for span, row in spans
            if row is not None and not self.alike and row_of.get(self._token_of(span, sequence)) == row + 1
        ]

    def _token_of(self, span: Span, sequence: Sequence) -> int:
        """The row of the text that carries the mention's entity."""
        marked = {(mark.start, mark.end) for mark in sequence.marks if mark.stream == self.tokens}
        if self.link == "first" or (span.start, span.end) not in marked:
            return span.start
        marker = marker_before(sequence.fields(self.tokens), span.start)
        return span.start if marker is None else marker


def _document_starts(doc: np.ndarray | None, length: int) -> list[int]:
    if doc is None:
        return [0] if length else []
    return np.flatnonzero(np.diff(doc, prepend=doc[:1] - 1)).tolist()
