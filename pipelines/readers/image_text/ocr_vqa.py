"""OCR-VQA (Mishra et al., ICDAR 2019): questions on covers of books, one JSON object with a book for each id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar
from urllib.parse import urlsplit

from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.image_text.questions import Identifiers, question_of
from pipelines.readers.reader import Malformed, MalformedError, Peek, as_object, require
from pipelines.sources.files import files
from pipelines.sources.json_files import read_json

SPLITS = {1: "train", 2: "val", 3: "test"}


@dataclass(frozen=True)
class OcrVqa(ImageReader):
    """The questions on a cover are one record; the images are named by the ids, with the suffix of `imageURL`.

    The split goes to `meta.split` (train, val, test), title, author and genre to `meta`. The file is held in memory.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".json",)

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return all(source.has_key(name) for name in ("imageURL", "questions", "answers"))

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        identifiers = Identifiers()
        for path in files(paths, self.suffixes):
            for number, (book, row) in enumerate(read_json(path).items()):
                where = f"{path.name}:{number}"
                with malformed:
                    questions = _questions(book, as_object(row, where), where, identifiers, malformed)
                    suffix = PurePosixPath(urlsplit(str(row.get("imageURL", ""))).path).suffix or ".jpg"
                    known = {"title": row.get("title"), "author": row.get("authorName"), "genre": row.get("genre")}
                    meta = {name: value for name, value in known.items() if value} | {"id": book}
                    meta |= {"split": SPLITS[row["split"]]} if row.get("split") in SPLITS else {}
                    yield f"{book}{suffix}", {"key": book, "questions": questions, "meta": meta}, where


def _questions(
    book: str, row: dict[str, Any], where: str, identifiers: Identifiers, malformed: Malformed
) -> list[dict[str, Any]]:
    """The well-formed questions of a book; a malformed one does not affect the others."""
    asked, answers = require(row, "questions", list, where), require(row, "answers", list, where)
    if len(asked) != len(answers):
        raise MalformedError("not an answer for each question", where, f"{len(asked)} and {len(answers)}")
    found = []
    for number, (question, answer) in enumerate(zip(asked, answers, strict=True)):
        with malformed:
            made = question_of({"question_id": f"{book}-{number}", "question": question, "answers": [answer]}, where)
            identifiers.take(made, where)
            found.append(made)
    return found
