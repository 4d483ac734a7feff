"""DAQUAR (Malinowski and Fritz 2014): a line with a question, which names its image, and a line with its answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.image_text.questions import ImageQuestions, question_of
from pipelines.readers.reader import Malformed, MalformedError, Peek, parse_text
from pipelines.sources.files import files, lines
from workbench.core.options.bounds import FileTemplate

IMAGE = re.compile(r"image(\d+)")  # not at a word boundary: one question has eimage999
PLACE = re.compile(r"\s*\bin (the|this) \w?image\d+\s*\??\s*$")
NAMED = re.compile(r".*\b\w?image\d+\s*(\?\s*)?")


@dataclass(frozen=True)
class Daquar(ImageReader):
    """The questions of an image are one record. Several answers (`book, scissor, papers`) are a set: all of them are
    right.

    "in the image3 ?" at the end of a question names its image and is removed. If the image is named elsewhere ("on the
    left side of the image94 ?") its number is removed. Lines are paired in their order, so a question without a line of
    answers is detected by the next line, which names an image.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".txt",)

    image_name: FileTemplate = "image{id}.png"

    @classmethod
    def detect(cls, source: Peek) -> bool:
        first = source.head[0].rstrip() if source.head else ""
        return first.endswith("?") and NAMED.fullmatch(first) is not None

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        asked = ImageQuestions[int]()
        for path in files(paths, self.suffixes):
            name = path.name.partition(".txt")[0]  # qa.37.raw.train: the training and test questions have different ids
            for number, line, answered in _pairs(path):
                where = f"{path.name}:{number}"
                with malformed:
                    image, question = _question(parse_text(line, where), where)
                    answers = _answers(parse_text(answered, where), where)
                    row = {"question_id": f"{name}-{number}", "question": question, "answers": answers}
                    asked.add(image, question_of(row, where), where)
        for image, questions, where in asked:
            file = self.named(self.image_name, where, id=image, subset="")
            yield file, {"key": f"image{image}", "questions": questions, "meta": {"id": image}}, where


def _pairs(path: Path) -> Iterator[tuple[int, bytes, bytes]]:
    """(number of the question's line, the question, the line of its answers, which may be missing).

    The line after a question has its answers unless it is the next question. Files may have empty lines between all
    lines, and they are ignored. If there are more of them than usual before an answer, and more than one, the answer's
    own question is missing, and the question before them has no answer.
    """
    numbered = [(number, line) for number, line in lines(path) if line.strip()]
    usual = _usual_gap(numbered)
    before: tuple[int, bytes] | None = None
    for number, line in numbered:
        if before is None:
            before = (number, line)
        elif _is_question(line):  # the next one: this one has no answers
            yield *before, b""
            before = (number, line)
        elif number - before[0] > 1 + max(usual, 1):
            yield *before, b""
            yield number, line, b""
            before = None
        else:
            yield *before, line
            before = None
    if before is not None:
        yield *before, b""


def _usual_gap(reported: list[tuple[int, bytes]]) -> int:
    """The usual number of empty lines between a question and its answers."""
    gaps = Counter(
        later - number - 1
        for (number, line), (later, behind) in pairwise(reported)
        if _is_question(line) and not _is_question(behind)
    )
    return gaps.most_common(1)[0][0] if gaps else 0


def _is_question(line: bytes) -> bool:
    return NAMED.fullmatch(line.decode(errors="replace")) is not None


def _question(text: str, where: str) -> tuple[int, str]:
    """The number of the last named image, and the question without it."""
    named = IMAGE.findall(text)
    if not named:
        raise MalformedError("the question names no image, as in 'in the image3 ?'", where, repr(text[:60]))
    asked = IMAGE.sub("image", PLACE.sub(" ?", text)).strip()
    return int(named[-1]), asked.removeprefix("?")


def _answers(text: str, where: str) -> list[str]:
    answers = [answer.strip() for answer in text.split(",") if answer.strip()]
    if not answers:
        raise MalformedError("a question without a line of answers", where)
    return answers
