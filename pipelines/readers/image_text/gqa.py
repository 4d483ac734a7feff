"""GQA (Hudson and Manning 2019): one JSON object with a question for each id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.image_text.questions import ImageQuestions, question_of
from pipelines.readers.reader import Malformed, Peek, as_object, require
from pipelines.sources.files import files
from pipelines.sources.json_files import read_json
from workbench.core.options.bounds import FileTemplate


@dataclass(frozen=True)
class Gqa(ImageReader):
    """The questions of an image are one record: `question_type` is GQA's structural type.

    `answer_type` is the semantic type. With `balanced` only the balanced questions are read. The
    questions of test and challenge have no answer. A file is held in memory.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".json",)

    image_name: FileTemplate = "{id}.jpg"
    balanced: bool = False

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return source.has_key("imageId") and source.has_key("question")

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        asked = ImageQuestions[str]()
        for path in files(paths, self.suffixes):
            for number, (question, row) in enumerate(read_json(path).items()):
                where = f"{path.name}:{number}"
                with malformed:
                    if self.balanced and not as_object(row, where).get("isBalanced"):
                        continue
                    image = require(as_object(row, where), "imageId", str, where)
                    asked.add(image, _question(question, row, where), where)
        for image, questions, where in asked:
            name = self.named(self.image_name, where, id=image, subset="")
            yield name, {"key": image, "questions": questions, "meta": {"id": image}}, where


def _question(identifier: str, row: dict[str, Any], where: str) -> dict[str, Any]:
    answers = [require(row, "answer", str, where)] if "answer" in row else []
    types = row["types"] if isinstance(row.get("types"), dict) else {}
    fields = {
        "answer": row.get("answer"),
        "question_type": types.get("structural"),
        "answer_type": types.get("semantic"),
    }
    known = {name: value for name, value in fields.items() if isinstance(value, str)}
    return question_of({**row, **known, "question_id": identifier, "answers": answers}, where)
