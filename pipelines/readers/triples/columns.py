"""Names and descriptions as lines `id<tab>text`: kg-bert's entity2text.txt, FB15k's mid2name, WordNet's definitions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pipelines.readers.reader import MalformedError, parse_text
from pipelines.sources.files import lines

SUFFIXES = (".tsv", ".txt")
DESCRIBES = re.compile("long|descri|defini|gloss", re.IGNORECASE)
"""A file with such a name has descriptions in its second column; any other has labels."""
QUOTED = re.compile(r'"(.*)"(?:@[A-Za-z-]+)?')


def column_rows(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Each id with its label or description; with three columns, with both. Quotes and languages (`"..."@en`) are
    removed.

    Raises:
        MalformedError: a line that is not UTF-8, or without an id or a second column.
    """
    two = ("description",) if DESCRIBES.search(path.name) else ("label",)
    for number, line in lines(path):
        if not line.strip():
            continue
        where = f"{path.name}:{number}"
        identifier, *texts = (column.strip() for column in parse_text(line, where).split("\t"))
        if not identifier or len(texts) not in (1, 2):
            wrong = f"found {1 + len(texts)} columns" if identifier else "the id is empty"
            raise MalformedError("expected id<tab>text", where, wrong)
        names = two if len(texts) == 1 else ("label", "description")
        yield identifier, {name: _plain(text) for name, text in zip(names, texts, strict=True)}


def _plain(text: str) -> str:
    quoted = QUOTED.fullmatch(text)
    return quoted[1] if quoted else text
