"""Visual questions as JSON lines: one question per line, `{question_id, image, question, answers, ...}`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.image_text.questions import Asked, question_of
from pipelines.readers.json_rows import SUFFIXES, row_records
from pipelines.readers.reader import Malformed, Match, Peek, parse_row, require


@dataclass(frozen=True)
class VqaJsonl(ImageReader):
    """The questions of an image are gathered in one record. A single `answer` counts as a list of one."""

    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    @classmethod
    def detect(cls, source: Peek) -> Match:
        return cls.likely(source, isinstance(source.row.get("image"), str) and "question" in source.row)

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        asked = Asked[str]()
        for record in row_records(paths):
            with malformed:
                row = parse_row(record.data[2], record.where)
                asked.add(require(row, "image", str, record.where), question_of(row, record.where), record.where)
        for name, questions, where in asked:
            yield name, {"questions": questions}, where
