"""Visual questions as JSON lines: one question per line, `{question_id, image, question, answers, ...}`.

VizWiz (Gurari et al., CVPR 2018), whose questions have no ids, and the lists of ALBEF and BLIP, whose `answer` lists
the answers of all annotators, are published as one JSON list of such rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.image_text.questions import ImageQuestions, question_of
from pipelines.readers.json_rows import SUFFIXES, row_records
from pipelines.readers.reader import Malformed, Match, Peek, Record, parse_row, require
from pipelines.sources.files import stem

log = logging.getLogger(__name__)

CHOSEN = "multiple_choice_answer"
"""The field of the most frequent answer in the official annotations."""
ANSWERS = frozenset({"answer", "answers", CHOSEN})


@dataclass(frozen=True)
class VqaJsonl(ImageReader):
    """The questions of an image are gathered in one record. A single `answer` counts as a list of one.

    A question without `question_id` is named by its image and its row. One without answers belongs to a test set.
    """

    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    @classmethod
    def detect(cls, source: Peek) -> Match:
        return cls.likely(source, isinstance(source.row.get("image"), str) and "question" in source.row)

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        asked = ImageQuestions[str]()
        made = bare = 0
        for record in row_records(paths):
            with malformed:
                row = parse_row(record.data[2], record.where)
                image = require(row, "image", str, record.where)
                asked.add(image, question_of(_usual(row, image, record), record.where), record.where)
                made, bare = made + ("question_id" not in row), bare + ANSWERS.isdisjoint(row)
        if made or bare:
            log.warning(
                "%s questions have no question_id and are named by image and row; %s have no answers",
                f"{made:,}",
                f"{bare:,}",
            )
        for name, questions, where in asked:
            yield name, {"questions": questions}, where


def _usual(row: dict[str, Any], image: str, record: Record) -> dict[str, Any]:
    """The row with an id, and with the list in `answer` as its answers."""
    named = row if "question_id" in row else {**row, "question_id": f"{stem(Path(image))}-{record.data[1]}"}
    if ANSWERS.isdisjoint(row):
        return {**named, "answers": []}
    if {"answer", "answers"}.isdisjoint(row):
        return {**named, "answer": row[CHOSEN]}
    if isinstance(row.get("answer"), list) and "answers" not in row:
        return {**{name: value for name, value in named.items() if name != "answer"}, "answers": row["answer"]}
    return named
