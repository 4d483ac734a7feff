"""VQA v2 as published (Goyal et al. 2017): a questions JSON and, for the answered splits, an annotations JSON."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.image_text.questions import ImageQuestions, question_of
from pipelines.readers.reader import Malformed, MalformedError, Peek, as_object, require
from pipelines.sources.files import files
from pipelines.sources.json_files import read_json, rows_of
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import FileTemplate

log = logging.getLogger(__name__)

Answers = dict[int | str, tuple[dict[str, Any], str]]


class _Questions(NamedTuple):
    """A questions file; `subset` is that of its images."""

    file: str
    subset: str
    rows: list[Any]


@dataclass(frozen=True)
class VqaOfficial(ImageReader):
    """The inputs are both files, in any order. `image_name` makes the file name of an image from its id."""

    suffixes: ClassVar[tuple[str, ...]] = (".json",)

    image_name: FileTemplate = "COCO_{subset}_{id:012d}.jpg"

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return source.has_key("data_subtype") or (source.has_key("questions") and source.has_key("task_type"))

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        sets: list[_Questions] = []
        answers: Answers | None = None
        for path in files(paths, self.suffixes):
            tree = read_json(path)
            if "questions" in tree:
                subset = str(tree.get("data_subtype", "")).replace("test-dev", "test")  # the same images as test
                sets.append(_Questions(path.name, subset, rows_of(tree, "questions", path)))
            else:
                answers = {} if answers is None else answers
                _add_answers(answers, rows_of(tree, "annotations", path), path, malformed)
        if not sets:
            raise WorkbenchError(
                f"no questions file among {', '.join(p.name for p in paths)}; give it with the annotations"
            )
        asked = ImageQuestions[str]()
        for one in sets:
            self._ask(asked, one, answers, malformed)
        for name, questions, where in asked:
            yield name, {"questions": questions}, where

    def _ask(
        self, asked: ImageQuestions[str], those: _Questions, answers: Answers | None, malformed: Malformed
    ) -> None:
        """Add the questions of a file; if there are annotations, log how many questions lack one, except of tests."""
        unanswered = 0
        for number, row in enumerate(those.rows):
            where = f"{those.file}:questions[{number}]"
            with malformed:
                image = require(as_object(row, where), "image_id", int, where)
                name = self.named(self.image_name, where, subset=those.subset, id=image)
                question = _answered(row, answers or {}, where)
                asked.add(name, question, where)
                unanswered += not question["answers"]
        if unanswered and answers is not None and not those.subset.startswith("test"):
            log.warning(
                "%s: %s of %s questions have no answers in the given annotations, and are stored without; is a "
                "file of annotations missing, or does it belong to other questions?",
                those.file,
                f"{unanswered:,}",
                f"{len(those.rows):,}",
            )


def _add_answers(answers: Answers, rows: list[Any], path: Path, malformed: Malformed) -> None:
    """Add the answers of each question, and their places. Of two annotations the first is used."""
    for number, row in enumerate(rows):
        where = f"{path.name}:annotations[{number}]"
        with malformed:
            identifier = require(as_object(row, where), "question_id", (int, str), where)
            if identifier in answers:
                found = f"question_id {identifier!r}, see {answers[identifier][1]}"
                raise MalformedError("a second annotation of a question", where, found)
            answers[identifier] = (row, where)


def _answered(row: dict[str, Any], answers: Answers, where: str) -> dict[str, Any]:
    """An element of `questions`; a question of the unanswered splits has no answers."""
    identifier = require(row, "question_id", (int, str), where)
    if identifier not in answers:
        return question_of({**row, "answers": []}, where)
    answered, details = answers[identifier]
    if "image_id" in answered and require(answered, "image_id", int, details) != row["image_id"]:
        found = f"question_id {identifier!r}: {answered['image_id']}, the question's is {row['image_id']}"
        raise MalformedError("an annotation of another image than its question", details, found)
    merged = {**answered, **row, "answers": require(answered, "answers", list, details)}
    if "multiple_choice_answer" in answered:
        merged["answer"] = answered["multiple_choice_answer"]
    return question_of(merged, where)
