"""SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018): questions on paragraphs, as published or in a table.

Published is one JSON object, `{"data": [{title, paragraphs: [{context, qas: [{id, question, answers: [{text,
answer_start}, ...]}, ...]}]}]}`. A table has a question a row: `id`, `title`, `context`, `question` and `answers:
{text: [...], answer_start: [...]}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.json_rows import SUFFIXES, RowReader, row_records
from pipelines.readers.reader import Malformed, MalformedError, Peek, Record, as_object, parse_row, peek, require
from pipelines.sources.files import files, record_key, stem
from pipelines.sources.json_files import read_json, rows_of
from workbench.sequences.sequence import Sample

USED = ("id", "context", "question", "answers")


@dataclass(frozen=True)
class Squad(RowReader):
    """`text` is the paragraph, `second` the question; `answers` and `answer_spans` are empty if it has no answer.

    The remaining fields (title, is_impossible, ...) go to the sample's `meta`.
    """

    kind: ClassVar[str] = "text"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return _is_published(source) or (
            {"context", "question"} <= source.row.keys() and _has_places(source.row.get("answers"))
        )

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        for path in files(paths, self.suffixes):
            yield from _questions(path) if _is_published(peek(path)) else row_records([path])

    def sample(self, record: Record) -> Sample:
        name, number, line = record.data
        row, where = parse_row(line, record.where), record.where
        context = require(row, "context", str, where)
        answers = _answers(row, where)
        for text, start in answers:
            if context[start : start + len(text)] != text:
                raise MalformedError("an answer is not at its place", where, f"{text[:40]!r} at {start}")
        meta = {field: value for field, value in row.items() if field not in USED and value is not None}
        return {
            "key": record_key(str(row.get("id") or f"{name}-{number}")),
            "text": context,
            "second": require(row, "question", str, where),
            "answers": [text for text, _ in answers],
            "answer_spans": [[start, start + len(text)] for text, start in answers],
            "meta": {"source": where.partition(":")[0], "line": number, **meta},
        }


def _is_published(source: Peek) -> bool:
    return source.has_key("paragraphs") and (source.has_key("qas") or source.has_key("context"))


def _has_places(answers: Any) -> bool:
    return isinstance(answers, dict) and {"text", "answer_start"} <= answers.keys()


def _questions(path: Path) -> Iterator[Record]:
    """A record for each question of a published file, in the form of a table's rows."""
    number, malformed = 0, Malformed()
    for article, topic in enumerate(rows_of(read_json(path), "data", path)):
        title = {"title": topic["title"]} if isinstance(topic, dict) and "title" in topic else {}
        place = f"{path.name}:data[{article}]"
        with malformed:
            for paragraph in require(as_object(topic, place), "paragraphs", list, place):
                context = require(as_object(paragraph, place), "context", str, place)
                for asked in require(paragraph, "qas", list, place):
                    number += 1
                    row = {**title, "context": context, **as_object(asked, place)}
                    yield Record((stem(path), number, row), len(context), f"{path.name}:{number}")
        yield from malformed.records()


def _answers(row: dict[str, Any], where: str) -> list[tuple[str, int]]:
    """Each answer with its place: of a list of objects, or of an object of lists.

    Raises:
        MalformedError: they have another form.
    """
    found = require(row, "answers", (list, dict), where)
    if isinstance(found, dict):
        texts, starts = (require(found, name, list, where) for name in ("text", "answer_start"))
        if len(texts) != len(starts):
            raise MalformedError("answers without a place each", where, f"{len(texts)} texts, {len(starts)} places")
        found = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    listed = [as_object(each, where) for each in found]
    return [(require(each, "text", str, where), require(each, "answer_start", int, where)) for each in listed]
