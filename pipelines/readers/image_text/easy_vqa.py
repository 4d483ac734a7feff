"""easy-VQA (Zhou 2019): a JSON list of `[question, answer, image id]` next to `images/`, for train and for test."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.image_text.questions import ImageQuestions, question_of
from pipelines.readers.json_rows import row_records
from pipelines.readers.reader import Malformed, MalformedError, Peek, check_pairs
from pipelines.sources.files import files
from workbench.core.errors import WorkbenchError
from workbench.core.files.text_files import parse_json
from workbench.core.options.bounds import FileTemplate

FORM = "not of the form [question, answer, image id]"


@dataclass(frozen=True)
class EasyVqa(ImageReader):
    """The questions of an image are one record; a question's id is its place in the list, counted from 1.

    Ids of images begin with 0 in train and in test, so each of these needs its own corpus.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".json",)

    image_name: FileTemplate = "{id}.png"

    @classmethod
    def detect(cls, source: Peek) -> bool:
        text = source.text.lstrip()
        try:
            first, _ = json.JSONDecoder().raw_decode(text.removeprefix("[").lstrip())
        except (ValueError, RecursionError):
            return False
        return text.startswith("[") and _fits(first)

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        """Raises WorkbenchError if more than one list is given: their images have the same ids."""
        if len(named := files(paths, self.suffixes)) > 1:
            raise WorkbenchError(
                f"easy-vqa reads one list of questions at a time, found {', '.join(map(str, named))}: image 0 of "
                "one is not image 0 of the other. Prepare a corpus for each"
            )
        asked = ImageQuestions[int]()
        for record in row_records(paths):
            _, number, raw = record.data
            with malformed:
                asked.add(*_question(raw, number, record.where), record.where)
        for image, questions, where in asked:
            name = self.named(self.image_name, where, id=image, subset="")
            yield name, {"questions": questions, "meta": {"id": image}}, where


def _question(raw: bytes, number: int, where: str) -> tuple[int, dict[str, Any]]:
    """The image's id and an element of `questions`."""
    try:
        row = parse_json(raw)
    except ValueError as error:
        raise MalformedError(FORM, where, str(error)) from error
    if not _fits(row):
        raise MalformedError(FORM, where, raw[:60].decode(errors="replace"))
    check_pairs(row, where)
    question, answer, image = row
    return image, question_of({"question_id": number, "question": question, "answer": answer}, where)


def _fits(row: Any) -> bool:
    return isinstance(row, list) and [type(part) for part in row] == [str, str, int] and row[2] >= 0
