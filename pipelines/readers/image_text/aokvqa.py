"""A-OKVQA (Schwenk et al., ECCV 2022): questions that need knowledge, with choices, direct answers and rationales."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.image_text.questions import Identifiers, question_of
from pipelines.readers.json_rows import SUFFIXES, row_records
from pipelines.readers.reader import Malformed, MalformedError, Peek, parse_row, require
from workbench.core.options.bounds import FileTemplate
from workbench.corpora.schema.field_values import strings


@dataclass(frozen=True)
class AOkVqa(ImageReader):
    """A record for each question, with its `choices`, and the right choice's number as `answer`.

    The direct answers are the answers of the question. Its `answer_type` is `difficult` if the official accuracy of
    direct answers excludes it, else `direct`. Its `rationales` are stored with it. The test set has neither answers nor
    rationales. Images are COCO's of 2017; all questions on one go to the same split.
    """

    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    image_name: FileTemplate = "{id:012d}.jpg"

    @classmethod
    def detect(cls, source: Peek) -> bool:
        own = {"direct_answers", "correct_choice_idx", "difficult_direct_answer"}
        return {"image_id", "question", "choices"} <= source.row.keys() and not own.isdisjoint(source.row)

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        identifiers = Identifiers()
        for record in row_records(paths):
            with malformed:
                row = parse_row(record.data[2], record.where)
                image = require(row, "image_id", int, record.where)
                fields = _fields(row, record.where)
                identifiers.take(fields["questions"][0], record.where)
                split = str(row.get("split") or "")
                meta = {"id": image, "document": str(image), **({"split": split} if split else {})}
                name = self.named(self.image_name, record.where, id=image, subset=split)
                yield name, {**fields, "key": fields["questions"][0]["question_id"], "meta": meta}, record.where


def _fields(row: dict[str, Any], where: str) -> dict[str, Any]:
    """The question, its choices and the number of the right one."""
    choices, right = require(row, "choices", list, where), row.get("correct_choice_idx")
    wrong = strings([*choices, *row.get("rationales", ())])
    if wrong:
        raise MalformedError("choices and rationales must be texts", where, wrong)
    if right is not None and not (type(right) is int and 0 <= right < len(choices)):
        raise MalformedError("correct_choice_idx is no number of a choice", where, repr(right)[:60])
    difficult = row.get("difficult_direct_answer")
    kind = {} if difficult is None else {"answer_type": "difficult" if difficult else "direct"}
    question = question_of({**row, "answers": row.get("direct_answers") or [], **kind}, where)
    return {"questions": [question], "choices": choices, **({} if right is None else {"answer": right})}
