"""Conversations about images, as LLaVA trains on them (Liu et al., NeurIPS 2023): turns of a human and of gpt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from pipelines.readers.image_text.images import ImageReader
from pipelines.readers.image_text.questions import question_of
from pipelines.readers.json_rows import SUFFIXES, row_records
from pipelines.readers.reader import Malformed, MalformedError, Match, Peek, parse_row, require
from pipelines.sources.files import stem

HUMAN, MACHINE, SYSTEM = ("human", "user"), ("gpt", "assistant"), ("system",)
PLACE = "<image>"


@dataclass(frozen=True)
class LlavaLists(ImageReader):
    """A human's turn and gpt's next turn are a question and its answer; all of an image are one record.

    With `turns=captions` gpt's turns are captions instead, as in the lists for LLaVA's first stage ("describe the
    image"). `<image>` marks the place of the image and is removed. A later question may refer to earlier turns; it is
    used without them here. Rows without an image have only text, and are counted.
    """

    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    turns: Literal["questions", "captions"] = "questions"

    @classmethod
    def detect(cls, source: Peek) -> Match:
        return cls.likely(source, "conversations" in source.row)

    def annotations(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[tuple[str, Mapping[str, Any], str]]:
        gathered: dict[str, tuple[list[Any], str]] = {}
        for record in row_records(paths):
            with malformed:
                row = parse_row(record.data[2], record.where)
                if not row.get("image"):
                    raise MalformedError("a conversation without an image", record.where, f"fields: {', '.join(row)}")
                image = require(row, "image", str, record.where)
                said, _ = gathered.setdefault(image, ([], record.where))
                for number, (asked, answer) in enumerate(_pairs(row, record.where)):
                    fields = {"question_id": f"{stem(Path(image))}-{record.data[1]}-{number}", "question": asked}
                    with malformed:
                        question = question_of({**fields, "answers": [answer]}, record.where)
                        said.append(question if self.turns == "questions" else answer)
        for image, (said, where) in gathered.items():
            yield image, {self.turns: said}, where


def _pairs(row: dict[str, Any], where: str) -> Iterator[tuple[str, str]]:
    """(the human's turn, gpt's answer)."""
    before = None
    for turn in require(row, "conversations", list, where):
        if not (isinstance(turn, dict) and isinstance(turn.get("value"), str)):
            raise MalformedError("a turn must have 'from' and the string 'value'", where, repr(turn)[:60])
        who, said = turn.get("from"), turn["value"].replace(PLACE, "").strip()
        if who in HUMAN:
            before = said
        elif who in MACHINE and before is not None:
            yield before, said
            before = None
        elif who not in SYSTEM:
            raise MalformedError("not a turn of human and one of gpt behind it", where, f"from {who!r}")
