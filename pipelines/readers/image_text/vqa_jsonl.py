"""Visual questions as JSON lines: one question per line, `{question_id, image, question, answers, ...}`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.json_rows import SUFFIXES, row_records
from pipelines.readers.reader import Malformed, MalformedError, Peek, check_pairs, parse_row, require

OPTIONAL = ("answer", "answer_type", "question_type")


@dataclass(frozen=True)
class VqaJsonl(ImageReader):
    """The questions of an image are gathered in one record. A single `answer` counts as a list of one."""

    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return {"image", "question"} <= source.row.keys()

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        gathered: dict[str, tuple[list[dict[str, Any]], str]] = {}
        for record in row_records(paths):
            with malformed:
                row = parse_row(record.data[2], record.where)
                name, question = require(row, "image", str, record.where), question_of(row, record.where)
                gathered.setdefault(name, ([], record.where))[0].append(question)
        for name, (questions, where) in gathered.items():
            yield name, {"questions": questions}, where


def question_of(row: dict[str, Any], where: str) -> dict[str, Any]:
    """One element of a sample's `questions`; answers may be strings or the official `{answer: ...}` objects."""
    answers = require(row, "answers", list, where) if "answers" in row else [require(row, "answer", str, where)]
    answers = [a.get("answer") if isinstance(a, dict) else a for a in answers]
    if not all(isinstance(answer, str) for answer in answers):
        raise MalformedError("answers must be strings, or objects with the string 'answer'", where)
    check_pairs(answers, where)
    question = {
        "question_id": require(row, "question_id", (int, str), where),
        "question": require(row, "question", str, where),
        "answers": answers,
    }
    return question | {name: row[name] for name in OPTIONAL if name in row}
