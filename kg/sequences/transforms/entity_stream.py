"""ERNIE-THU's entity stream: one row per linked mention, hung on the mention's first token.

Zhang et al., "ERNIE: Enhanced Language Representation with Informative Entities", ACL 2019 (arXiv 1905.07129).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kg.sequences.linked_transform import visibility_at
from kg.sequences.table_transform import TableTransform
from workbench.core.options.bounds import CountOrZero, Location, Name, Share, Word
from workbench.sequences.sequence import Fields, Rows, Sequence

NONE = 0  # row 0 of an entity table is the zero vector


class EntityStreamTransform(TableTransform):
    """Entity stream of ERNIE-THU (Zhang et al., arXiv:1905.07129). It has a row for each linked mention, aligned with
    the first token of the mention.

    `table` is the file of entity vectors (`kg.vectors.vectors`); row r of it is `entity_ids` r + 1, and 0 is the zero
    vector. A span whose entity has no vector, or whose first token has an entity already (the longer mention wins), is
    left out and counted (`take_dropped`), and so is a mention in a stretch that `Sequence.mask_spans` names: its vector
    would reveal what is to be predicted.

    Of mentions with a linker's score, those above `min_score` count (the released code, in fine-tuning: 0.3 for typing,
    0.4 for TACRED).

    `cls_row` puts a row with entity 0 on the first token of every document, as the released code does by forcing its
    entity mask to 1 at [CLS]: that row takes part in the self-attention of the entities.

    `tokens` is the stream whose mentions are read, `stream` the one that is made.

    `control` is the recipe's: `no-kg` links no mention; under `mentions-only` all entities
    have the vector of the table's first one.
    """

    def __init__(
        self,
        table: Location | Mapping[Name, CountOrZero],
        cls_row: bool = True,
        min_score: Share = 0.0,
        tokens: Word = "text",
        stream: Word = "entity",
        control: Name | None = None,
    ) -> None:
        super().__init__(table, min_score, control)
        self.cls_row = cls_row
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
            if span.start in found:
                self.dropped["mentions with the same first token"] += 1
            else:
                found[span.start] = row + 1
        self.used["mentions"] += len(found)
        if self.cls_row:
            for start in _document_starts(text.get("doc"), len(text["input_ids"])):
                found.setdefault(start, NONE)
        tokens = np.array(sorted(found), np.int64)
        entity: Fields = {"entity_ids": np.array([found[t] for t in tokens.tolist()], np.int64)}
        entity["token"] = Rows(self.tokens, tokens, bound=True)
        entity |= visibility_at(text, tokens)
        sequence.streams[self.stream] = entity


def _document_starts(doc: np.ndarray | None, length: int) -> list[int]:
    if doc is None:
        return [0] if length else []
    return np.flatnonzero(np.diff(doc, prepend=doc[:1] - 1)).tolist()
