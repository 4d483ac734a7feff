"""Relation classification sets: sentences with two marked mentions (FewRel, Han et al. 2018; SemEval-2010 task 8;
TACRED, Zhang et al. 2017).

FewRel's rows are `{relation, tokens, head: {name, id, spans: [[token, ...], ...]}, tail: {...}}`, SemEval's
`{relation, sentence}` with the mentions between `<e1>`, `</e1>` and `<e2>`, `</e2>`, TACRED's `{relation, token,
subj_start, subj_end, obj_start, obj_end}`, whose ends are the numbers of the last tokens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from pipelines.readers.json_rows import SUFFIXES, RowReader
from pipelines.readers.reader import MalformedError, Peek, Record, parse_row, require
from pipelines.readers.row_fields import word_places
from pipelines.sources.files import record_key
from workbench.sequences.sequence import Sample

ROLES = ("head", "tail")
"""The names of the two mentions in `marks`."""
TACRED = {"head": ("subj_start", "subj_end"), "tail": ("obj_start", "obj_end")}
KEPT = ("subj_type", "obj_type")
BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
"""The names of brackets in the Penn Treebank and in TACRED."""
_TAG = re.compile(r"<(/?)(e[12])>")


@dataclass(frozen=True)
class RelatedMentions(RowReader):
    """`marks` are the spans of head and tail, `labels.relation` the relation; ids of the mentions become `spans`.

    Tokens are joined by spaces; TACRED's names of brackets (-LRB-) become brackets. Its subject is the head, and its
    types of both mentions go to `meta`. If a mention occurs several times, the first place is marked.
    """

    kind: ClassVar[str] = "text"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    @classmethod
    def detect(cls, source: Peek) -> bool:
        row = source.row
        own = {"tokens", "head", "tail"} <= row.keys() or {"token", *TACRED["head"], *TACRED["tail"]} <= row.keys()
        return "relation" in row and (own or _is_tagged(row))

    def sample(self, record: Record) -> Sample:
        name, number, line = record.data
        row = parse_row(line, record.where)
        read = _tagged if "sentence" in row else _pointed if "tokens" in row else _ranged
        text, marks, spans = read(row, record.where)
        sample: Sample = {"key": record_key(f"{name}-{number}"), "text": text, "marks": sorted(marks)}
        if spans:
            sample["spans"] = sorted(spans)
        sample["labels"] = {"relation": require(row, "relation", str, record.where)}
        more = {name: row[name] for name in KEPT if name in row}
        return {**sample, "meta": {"source": record.where.rpartition(":")[0], "line": number, **more}}


def _is_tagged(row: dict[str, Any]) -> bool:
    return isinstance(row.get("sentence"), str) and _TAG.search(row["sentence"]) is not None


def _pointed(row: dict[str, Any], where: str) -> tuple[str, list[list[Any]], list[list[Any]]]:
    """Text, marks and links of a row whose mentions are numbers of tokens."""
    tokens = _strings(row, "tokens", where)
    places = word_places(tokens)
    marks, spans = [], []
    for role in ROLES:
        mention = require(row, role, dict, where)
        found = require(mention, "spans", list, where)
        if not found or not found[0] or not all(type(i) is int and 0 <= i < len(tokens) for i in found[0]):
            raise MalformedError(f"the {role} has no place among the {len(tokens)} tokens", where, f"spans {found!r}")
        start, end = places[min(found[0])][0], places[max(found[0])][1]
        marks.append([start, end, role])
        if isinstance(mention.get("id"), str):
            spans.append([start, end, mention["id"], 1.0])
    return " ".join(tokens), marks, spans


def _ranged(row: dict[str, Any], where: str) -> tuple[str, list[list[Any]], list[list[Any]]]:
    """Text and marks of a row whose mentions have a first and a last token; there are no links."""
    tokens = [BRACKETS.get(token.upper(), token) for token in _strings(row, "token", where)]
    places = word_places(tokens)
    marks: list[list[Any]] = []
    for role, ends in TACRED.items():
        first, last = (require(row, name, int, where) for name in ends)
        if not 0 <= first <= last < len(tokens):
            raise MalformedError(f"the {role} has no place among the {len(tokens)} tokens", where, f"{first} to {last}")
        marks.append([places[first][0], places[last][1], role])
    return " ".join(tokens), marks, []


def _strings(row: dict[str, Any], name: str, where: str) -> list[str]:
    tokens: list[str] = require(row, name, list, where)
    if not all(isinstance(token, str) for token in tokens):
        raise MalformedError("tokens must be strings", where)
    return tokens


def _tagged(row: dict[str, Any], where: str) -> tuple[str, list[list[Any]], list[list[Any]]]:
    """Text without the tags, and the marks in their place; there are no links."""
    text, at, places = "", 0, {}
    for tag in _TAG.finditer(require(row, "sentence", str, where)):
        text += row["sentence"][at : tag.start()]
        places[tag[2], bool(tag[1])] = len(text)
        at = tag.end()
    text += row["sentence"][at:]
    try:
        marks = [[places[f"e{n}", False], places[f"e{n}", True], role] for n, role in enumerate(ROLES, 1)]
    except KeyError:
        raise MalformedError("a mention is not marked by <e1>, </e1>, <e2>, </e2>", where, repr(text[:60])) from None
    return text, marks, []
