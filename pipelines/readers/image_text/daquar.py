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

IMAGE = re.compile(r"image(\d+)")  # not a word's beginning: one question says eimage999
PLACE = re.compile(r"\s*\bin (the|this) \w?image\d+\s*\??\s*$")
NAMED = re.compile(r".*\b\w?image\d+\s*(\?\s*)?")


@dataclass(frozen=True)
class Daquar(ImageReader):
    """The questions of an image are one record; several answers (`book, scissor, papers`) are a set, all of them right.

    "in the image3 ?" at a question's end says of which image it is and is taken off; where the image is named otherwise
    ("on the left side of the image94 ?") its number is taken off. Lines are paired as they stand, so a question without
    its line of answers is found by what does not name an image.
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
            name = path.name.partition(".txt")[0]  # qa.37.raw.train: its questions and those of the test have other ids
            for number, line, answered in _pairs(path):
                where = f"{path.name}:{number}"
                with malformed:
                    image, question = _question(parse_text(line, where), where)
                    answers = _answers(parse_text(answered, where), where)
                    reported = {"question_id": f"{name}-{number}", "question": question, "answers": answers}
                    asked.add(image, question_of(reported, where), where)
        for image, questions, where in asked:
            file = self.named(self.image_name, where, id=image, subset="")
            yield file, {"key": f"image{image}", "questions": questions, "meta": {"id": image}}, where


def _pairs(path: Path) -> Iterator[tuple[int, bytes, bytes]]:
    """(number of the question's line, it, the line of its answers, which may be lacking).

    The line behind a question has its answers unless it is the next question. Empty lines are none: files may have them
    between all lines. Where there are more than usual before an answer, and than one, its own question is lacking, and
    the question before them has none.
    """
    reported = [(number, line) for number, line in lines(path) if line.strip()]
    usual = _usual_gap(reported)
    before: tuple[int, bytes] | None = None
    for number, line in reported:
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
    """How many empty lines stand between most questions and their answers."""
    gaps = Counter(
        later - number - 1
        for (number, line), (later, behind) in pairwise(reported)
        if _is_question(line) and not _is_question(behind)
    )
    return gaps.most_common(1)[0][0] if gaps else 0


def _is_question(line: bytes) -> bool:
    return NAMED.fullmatch(line.decode(errors="replace")) is not None


def _question(text: str, where: str) -> tuple[int, str]:
    """The number of the image that is named last, and the question without it."""
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
