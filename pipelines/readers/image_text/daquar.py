"""DAQUAR (Malinowski and Fritz 2014): a line with a question, which names its image, and a line with its answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.reader import Malformed, MalformedError, Peek, parse_text
from pipelines.sources.files import files, lines
from workbench.options.bounds import FileTemplate

IMAGE = re.compile(r"image(\d+)")  # not a word's beginning: one question says eimage999
PLACE = re.compile(r"\s*\bin (the|this) \w?image\d+\s*\?\s*$")
NAMED = re.compile(r".*\bimage\d+ ?\?\s*")


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
        return bool(source.head) and NAMED.fullmatch(source.head[0]) is not None

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        gathered: dict[int, tuple[list[dict[str, Any]], str]] = {}
        for path in files(paths, self.suffixes):
            name = path.name.partition(".txt")[0]  # qa.37.raw.train: its questions and those of the test have other ids
            for number, asked, answered in _pairs(path):
                where = f"{path.name}:{number}"
                with malformed:
                    image, question = _question(parse_text(asked, where), where)
                    answers = _answers(parse_text(answered, where), where)
                    told = {"question_id": f"{name}-{number}", "question": question, "answers": answers}
                    gathered.setdefault(image, ([], where))[0].append(told)
        for image, (questions, where) in gathered.items():
            file = self.named(self.image_name, where, id=image, subset="")
            yield file, {"key": f"image{image}", "questions": questions, "meta": {"id": image}}, where


def _pairs(path: Path) -> Iterator[tuple[int, bytes, bytes]]:
    """(number of the question's line, it, the line behind it); empty lines are none, and behind the last is nothing."""
    before: tuple[int, bytes] | None = None
    for number, line in lines(path):
        if not line.strip():
            continue
        if before is None:
            before = (number, line)
        elif NAMED.fullmatch(line.decode(errors="replace")):  # the next question: this one has no answers
            yield *before, b""
            before = (number, line)
        else:
            yield *before, line
            before = None
    if before is not None:
        yield *before, b""


def _question(text: str, where: str) -> tuple[int, str]:
    """The number of the image that is named last, and the question without it."""
    named = IMAGE.findall(text)
    if not named:
        raise MalformedError("the question names no image, as in 'in the image3 ?'", where, repr(text[:60]))
    asked = IMAGE.sub("image", PLACE.sub(" ?", text)).strip()
    return int(named[-1]), asked


def _answers(text: str, where: str) -> list[str]:
    answers = [answer.strip() for answer in text.split(",") if answer.strip()]
    if not answers:
        raise MalformedError("a question without a line of answers", where)
    return answers
