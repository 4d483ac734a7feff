"""VQA v2 as published (Goyal et al. 2017): a questions JSON and, for the answered splits, an annotations JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.image_text.vqa_jsonl import question_of
from pipelines.readers.reader import Malformed, Peek, require
from pipelines.sources.files import files
from pipelines.sources.json_file import read_json, rows_of
from workbench.errors import WorkbenchError
from workbench.options.bounds import FileTemplate


@dataclass(frozen=True)
class VqaOfficial(ImageReader):
    """Give both files as inputs, in any order. `image_name` makes the file name of an image from its id."""

    suffixes: ClassVar[tuple[str, ...]] = (".json",)

    image_name: FileTemplate = "COCO_{subset}_{id:012d}.jpg"

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return source.has_key("data_subtype") or (source.has_key("questions") and source.has_key("task_type"))

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        questions: list[tuple[dict[str, Any], str, str]] = []
        answers: dict[Any, dict[str, Any]] = {}
        for path in files(paths, self.suffixes):
            tree = read_json(path)
            if "questions" in tree:
                subset = str(tree.get("data_subtype", "")).replace("test-dev", "test")  # its images are those of test
                rows = rows_of(tree, "questions", path)
                questions += [(row, subset, f"{path.name}:questions[{i}]") for i, row in enumerate(rows)]
            else:
                answers |= {row.get("question_id"): row for row in rows_of(tree, "annotations", path)}
        if not questions:
            raise WorkbenchError(
                f"no questions file among {', '.join(p.name for p in paths)}; give it with the annotations"
            )
        yield from self._gathered(questions, answers)

    def _gathered(
        self, questions: list[tuple[dict[str, Any], str, str]], answers: Mapping[Any, dict[str, Any]]
    ) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        gathered: dict[str, tuple[list[dict[str, Any]], str]] = {}
        for row, subset, where in questions:
            image = require(row, "image_id", int, where)
            name = self.named(self.image_name, where, subset=subset, id=image)
            answered = answers.get(row.get("question_id"), {"answers": []})
            merged = {**answered, **row, "answers": answered["answers"]}
            if "multiple_choice_answer" in answered:
                merged["answer"] = answered["multiple_choice_answer"]
            gathered.setdefault(name, ([], where))[0].append(question_of(merged, where))
        for name, (found, where) in gathered.items():
            yield name, {"questions": found}, where
