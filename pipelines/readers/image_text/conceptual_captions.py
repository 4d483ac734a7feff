"""Conceptual Captions: lines `caption<tab>url` (Sharma et al. 2018); CC12M: `url<tab>caption` (Changpinyo et al.)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pipelines.readers.image_text.url_list import UrlList, UrlRow
from pipelines.readers.reader import Malformed, MalformedError, Peek, parse_text
from pipelines.sources.files import files, lines

SCHEMES = ("http://", "https://")


@dataclass(frozen=True)
class ConceptualCaptions(UrlList):
    """The column that begins with http:// or https:// is the URL."""

    suffixes: ClassVar[tuple[str, ...]] = (".tsv", ".txt")

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return bool(source.head) and _apart(source.head[0]) is not None

    def listed(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[UrlRow]:
        for path in files(paths, self.suffixes):
            for number, line in lines(path):
                where = f"{path.name}:{number}"
                with malformed:
                    text = parse_text(line, where)
                    found = _apart(text)
                    if found is not None:
                        url, caption = found
                        yield UrlRow(path.name, number, url, [caption], {})
                    elif text.strip():
                        raise MalformedError("not of the form caption<tab>url", where, repr(text[:60]))


def _apart(text: str) -> tuple[str, str] | None:
    """URL and caption."""
    cells = [cell.strip() for cell in text.split("\t")]
    if len(cells) != 2:
        return None
    urls = [cell.startswith(SCHEMES) for cell in cells]
    if not any(urls):
        return None
    return (cells[1], cells[0]) if urls[1] else (cells[0], cells[1])
