"""Entity-linked articles as wordpieces (the pretraining data of ERNIE-THU, Zhang et al. 2019, as JSON lines).

A line is `{doc_id, sentences: [{tokens, links: [[start, end, entity id]]}]}`; the tokens are wordpieces with `##`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pipelines.readers.json_rows import SUFFIXES, RowReader
from pipelines.readers.reader import MalformedError, Peek, Record, parse_row, require
from pipelines.sources.files import record_key
from workbench.core.options.bounds import Name
from workbench.sequences.sequence import Sample

Span = list[Any]


@dataclass(frozen=True)
class LinkedWordpieces(RowReader):
    """Wordpieces are joined to text (`##` continues a word), sentences by line ends; links become character spans.

    `linker` and `linker_version` are stored with every document, as the source of the links.
    """

    kind: ClassVar[str] = "text"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    linker: Name = "wikipedia-links"
    linker_version: Name = "as published"

    @classmethod
    def detect(cls, source: Peek) -> bool:
        sentences = source.row.get("sentences") or (source.has_key("sentences") and source.has_key("links"))
        return source.suffix in SUFFIXES and bool(sentences)

    def sample(self, record: Record) -> Sample:
        name, number, line = record.data
        row = parse_row(line, record.where)
        text, spans = "", []
        for sentence in require(row, "sentences", list, record.where):
            tokens = require(sentence, "tokens", list, record.where)
            text += "\n" if text else ""
            joined, starts, ends = join_wordpieces(tokens)
            for link in sentence.get("links", []):
                spans.append(_span(link, len(text), starts, ends, record.where))
            text += joined
        key = record_key(f"{name}-{row.get('doc_id', number)}")
        linker = {"name": self.linker, "version": self.linker_version}
        meta = {"source": record.where.rpartition(":")[0], "line": number, "linker": linker}
        return {"key": key, "text": text, "spans": sorted(spans), "meta": meta}


def join_wordpieces(tokens: Sequence[str]) -> tuple[str, list[int], list[int]]:
    """Text from wordpieces, one space between words, and the [start, end) of each piece in it."""
    parts: list[str] = []
    starts, ends = [], []
    length = 0
    for token in tokens:
        continues = token.startswith("##") and len(token) > 2 and length > 0
        piece = token[2:] if continues else token
        if length and not continues:
            parts.append(" ")
            length += 1
        starts.append(length)
        length += len(piece)
        ends.append(length)
        parts.append(piece)
    return "".join(parts), starts, ends


def _span(link: Sequence[Any], offset: int, starts: list[int], ends: list[int], where: str) -> Span:
    """A link over pieces [start, end) as `[start, end, entity id, score]` over characters of the document."""
    start, end, entity = link
    if not 0 <= start < end <= len(starts):
        raise MalformedError("a link lies outside of its sentence", where, f"[{start}, {end}) of {len(starts)} tokens")
    return [offset + starts[start], offset + ends[end - 1], entity, 1.0]
