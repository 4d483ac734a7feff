"""Entity typing sets in the layout of ultra-fine entity typing / Open Entity (Choi et al., ACL 2018).

A line is `{annot_id, left_context_token, mention_span, right_context_token, y_str}`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipelines.readers.json_rows import SUFFIXES, RowReader
from pipelines.readers.reader import Drop, Peek, Record, parse_row, require
from pipelines.sources.files import record_key
from workbench.sequences.sequence import Sample


@dataclass(frozen=True)
class TypedMentions(RowReader):
    """The tokens are joined by spaces; `mention` is the mention's `[start, end]` in the text, `types` its types."""

    kind: ClassVar[str] = "text"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return "mention_span" in source.row

    def sample(self, record: Record) -> Sample | Drop:
        name, number, line = record.data
        row = parse_row(line, record.where)
        left = " ".join(require(row, "left_context_token", list, record.where))
        right = " ".join(require(row, "right_context_token", list, record.where))
        mention = require(row, "mention_span", str, record.where)
        types = require(row, "y_str", list, record.where)
        if not mention.strip():
            return Drop("empty mention")
        start = len(left) + 1 if left else 0
        text = " ".join(part for part in (left, mention, right) if part)
        meta = {"source": record.where.rpartition(":")[0], "line": number, "id": row.get("annot_id")}
        return {
            "key": record_key(f"{name}-{number}"),
            "text": text,
            "mention": [start, start + len(mention)],
            "types": sorted(set(types)),
            "meta": meta,
        }
