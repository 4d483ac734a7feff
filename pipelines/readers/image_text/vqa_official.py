"""VQA v2 as published (Goyal et al. 2017): a questions JSON and, for the answered splits, an annotations JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.image_text.vqa_jsonl import question_of
from pipelines.readers.reader import Malformed, Peek, as_object, require
from pipelines.sources.files import files
from pipelines.sources.json_file import read_json, rows_of
from workbench.errors import WorkbenchError
from workbench.options.bounds import FileTemplate

Answers = dict[int | str, tuple[dict[str, Any], str]]


@dataclass(frozen=True)
class VqaOfficial(ImageReader):
    """Give both files as inputs, in any order. `image_name` makes the file name of an image from its id."""

    suffixes: ClassVar[tuple[str, ...]] = (".json",)

    image_name: FileTemplate = "COCO_{subset}_{id:012d}.jpg"

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return source.has_key("data_subtype") or (source.has_key("questions") and source.has_key("task_type"))

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        questions: list[tuple[Any, str, str]] = []
        answers: Answers = {}
        for path in files(paths, self.suffixes):
            tree = read_json(path)
            if "questions" in tree:
                subset = str(tree.get("data_subtype", "")).replace("test-dev", "test")  # its images are those of test
                rows = rows_of(tree, "questions", path)
                questions += [(row, subset, f"{path.name}:questions[{i}]") for i, row in enumerate(rows)]
            else:
                answers |= _answers(rows_of(tree, "annotations", path), path, malformed)
        if not questions:
            raise WorkbenchError(
                f"no questions file among {', '.join(p.name for p in paths)}; give it with the annotations"
            )
        gathered: dict[str, tuple[list[dict[str, Any]], str]] = {}
        for row, subset, where in questions:
            with malformed:
                image = require(as_object(row, where), "image_id", int, where)
                name = self.named(self.image_name, where, subset=subset, id=image)
                question = _answered(row, answers, where)
                gathered.setdefault(name, ([], where))[0].append(question)
        for name, (found, where) in gathered.items():
            yield name, {"questions": found}, where


def _answers(rows: list[Any], path: Path, malformed: Malformed) -> Answers:
    """By question what was answered, and where it stands."""
    answers: Answers = {}
    for number, row in enumerate(rows):
        where = f"{path.name}:annotations[{number}]"
        with malformed:
            answers[require(as_object(row, where), "question_id", (int, str), where)] = (row, where)
    return answers


def _answered(row: dict[str, Any], answers: Answers, where: str) -> dict[str, Any]:
    """An element of `questions`; a question of the unanswered splits has no answers."""
    identifier = require(row, "question_id", (int, str), where)
    if identifier not in answers:
        return question_of({**row, "answers": []}, where)
    answered, told = answers[identifier]
    merged = {**answered, **row, "answers": require(answered, "answers", list, told)}
    if "multiple_choice_answer" in answered:
        merged["answer"] = answered["multiple_choice_answer"]
    return question_of(merged, where)
