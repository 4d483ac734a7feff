"""Entity disambiguation sets whose texts mark one mention, with candidates (KORE 50, OKE 2015 in this layout).

A line is `{input, mention, answer, candidates}`: the mention is between `[START_ENT]` and `[END_ENT]` in `input`,
`answer` is its entity and `candidates` are possible entities, mostly titles of Wikipedia.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipelines.readers.json_rows import SUFFIXES, RowReader
from pipelines.readers.reader import Drop, MalformedError, Peek, Record, parse_row, require
from pipelines.sources.files import record_key
from workbench.sequences.sequence import Sample

BEGIN, END = "[START_ENT]", "[END_ENT]"


@dataclass(frozen=True)
class MarkedMentions(RowReader):
    """`mention` is the marked span, `spans` its link, `choices` the candidates, `answer` the number of the right one.

    A mention without an answer has no link (NIL); if the answer is not a candidate, there is no `answer`.
    """

    kind: ClassVar[str] = "text"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return BEGIN in str(source.row.get("input", ""))

    def sample(self, record: Record) -> Sample | Drop:
        name, number, line = record.data
        row = parse_row(line, record.where)
        marked = require(row, "input", str, record.where)
        if marked.count(BEGIN) != 1 or marked.count(END) != 1 or marked.index(END) < marked.index(BEGIN):
            raise MalformedError(f"a mention is not marked by one {BEGIN} and one {END}", record.where, marked[:80])
        before, _, rest = marked.partition(BEGIN)
        mention, _, after = rest.partition(END)
        if not mention.strip():
            return Drop("empty mention")
        stretch = [len(before), len(before) + len(mention)]
        entity = require(row, "answer", str, record.where).strip()
        choices = [str(choice) for choice in require(row, "candidates", list, record.where)]
        sample: Sample = {
            "key": record_key(f"{name}-{number}"),
            "text": before + mention + after,
            "mention": stretch,
            "spans": [[*stretch, entity, 1.0]] if entity else [],
            "choices": choices,
            "meta": {"source": record.where.rpartition(":")[0], "line": number, "id": row.get("id")},
        }
        return {**sample, "answer": choices.index(entity)} if entity in choices else sample
