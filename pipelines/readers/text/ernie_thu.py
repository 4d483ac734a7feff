"""The fine-tuning sets published with ERNIE-THU (Zhang et al., ACL 2019): Open Entity and FIGER, FewRel and TACRED,
with linked entities.

A row of typing is `{sent, start, end, ents: [[entity, start, end, score], ...], labels: [type, ...]}`. A row of
relations is `{text, ents: [[entity, start, end], [entity, start, end]], label}`, whose `ents` are the head and the
tail; the field `ann`, if present, has the linked entities. Places are characters. An entity that their linker did not
know is "#UNK#": a mention without a link.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pipelines.readers.json_rows import SUFFIXES, RowReader
from pipelines.readers.reader import LEFT_OUT, MalformedError, Peek, Record, parse_row, require
from pipelines.readers.text.related_mentions import ROLES
from pipelines.sources.files import record_key
from workbench.sequences.sequence import Sample

UNKNOWN, NO_ENTITY = "#UNK#", "a mention whose entity is #UNK#"
TYPING, RELATIONS = frozenset({"sent", "start", "end", "labels"}), frozenset({"text", "ents", "label"})


@dataclass(frozen=True)
class ErnieThuText(RowReader):
    """`mention` and `types`, or `marks` of head and tail and `labels.relation`; linked entities are `spans`, scored.

    A transform that reads entities sets the smallest score: 0.3 in the released code, 0.4 for TACRED.
    """

    kind: ClassVar[str] = "text"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return source.row.keys() >= TYPING or source.row.keys() >= RELATIONS

    def sample(self, record: Record) -> Sample:
        name, number, line = record.data
        row = parse_row(line, record.where)
        fields = _typed(row, record.where) if "sent" in row else _related(row, record.where)
        meta: dict[str, Any] = {"source": record.where.rpartition(":")[0], "line": number}
        links = [span for span in fields["spans"] if span[2] != UNKNOWN]
        if len(links) < len(fields["spans"]):
            meta[LEFT_OUT] = {NO_ENTITY: len(fields["spans"]) - len(links)}
        return {"key": record_key(f"{name}-{number}"), **fields, "spans": links, "meta": meta}


def _typed(row: dict[str, Any], where: str) -> Sample:
    text = require(row, "sent", str, where)
    start, end, *_ = _stretch(["", row.get("start"), row.get("end")], text, where)
    types = require(row, "labels", list, where)
    if not all(isinstance(name, str) for name in types):
        raise MalformedError("labels must be strings", where)
    spans = _stretches(row, "ents", text, where) if "ents" in row else []
    return {"text": text, "mention": [start, end], "types": sorted(set(types)), "spans": sorted(spans)}


def _related(row: dict[str, Any], where: str) -> Sample:
    text = require(row, "text", str, where)
    ends = _stretches(row, "ents", text, where)
    if len(ends) != len(ROLES):
        raise MalformedError("`ents` must be the head and the tail", where, f"found {len(ends)}")
    spans = _stretches(row, "ann", text, where) if "ann" in row else ends
    marks = sorted([start, end, role] for (start, end, *_), role in zip(ends, ROLES, strict=True))
    labels = {"relation": require(row, "label", str, where)}
    return {"text": text, "marks": marks, "spans": sorted(spans), "labels": labels}


def _stretches(row: dict[str, Any], name: str, text: str, where: str) -> list[list[Any]]:
    return [_stretch(found, text, where) for found in require(row, name, list, where)]


def _stretch(found: Any, text: str, where: str) -> list[Any]:
    """Start, end, entity and score of `[entity, start, end]` or `[entity, start, end, score]`."""
    match found:
        case [str(entity), int(start), int(end)] if 0 <= start < end <= len(text):
            return [start, end, entity, 1.0]
        case [str(entity), int(start), int(end), int() | float() as score] if 0 <= start < end <= len(text):
            return [start, end, entity, float(score)]
    place = f"{found!r} of {len(text)} characters"
    raise MalformedError("a mention must be [entity, start, end], with its score or without", where, place)
