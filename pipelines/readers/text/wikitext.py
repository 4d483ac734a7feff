"""WikiText (Merity et al. 2016): plain text whose articles begin with a line ` = Title = `."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipelines.readers.reader import Peek
from pipelines.readers.text.plain_text import PlainText, is_wikitext


@dataclass(frozen=True)
class WikiText(PlainText):
    """Plain text with `document=heading`."""

    document: Literal["blank-line", "line", "file", "heading"] = "heading"

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return is_wikitext(source)
