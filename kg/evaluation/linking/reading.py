"""Mentions whose entities are known, read from a corpus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError
from workbench.evaluation.passes import all_records

Stretch = tuple[int, int]


@dataclass
class Annotated:
    """A text, the right entities of each mention (none: NIL), and of some the first of the corpus's candidates."""

    text: str
    mentions: dict[Stretch, set[str]] = field(default_factory=dict)
    first: dict[Stretch, str] = field(default_factory=dict)

    def add(self, sample: Mapping[str, Any], same: Mapping[str, str]) -> None:
        """The mentions of a record of this text."""
        for start, end, entity, *_ in sample.get("spans", ()):
            self.mentions.setdefault((start, end), set()).add(same.get(entity, entity))
        if "mention" in sample:
            start, end = sample["mention"][:2]
            self.mentions.setdefault((start, end), set())
            if sample.get("choices"):
                self.first[start, end] = same.get(sample["choices"][0], sample["choices"][0])


def annotated(corpus: Corpus, same: Mapping[str, str], limit: int | None = None) -> Iterator[Annotated]:
    """The texts of a corpus with their mentions; records of the same text that follow each other are one.

    Args:
        same: ids of the corpus -> ids of the linker, where they differ.

    Raises:
        WorkbenchError: the corpus has no links.
    """
    if corpus.kind != "text" or "spans" not in corpus.manifest.fields:
        raise WorkbenchError(
            f"{corpus.place} (kind {corpus.kind}, fields {', '.join(corpus.manifest.fields)}) has no links to compare "
            "with; allowed: a text corpus whose field 'spans' has the right entities"
        )
    last: Annotated | None = None
    for sample in islice(all_records(corpus), limit):
        if last is None or last.text != sample["text"]:
            if last is not None:
                yield last
            last = Annotated(sample["text"])
        last.add(sample, same)
    if last is not None:
        yield last


def read_same(path: Path) -> dict[str, str]:
    """Ids by other ids, from lines `corpus's id<tab>linker's id`.

    Raises:
        WorkbenchError: no such file, or a line that is none of these; says which.
    """
    if not path.is_file():
        raise WorkbenchError(f"--same {path}: there is no such file")
    same = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        columns = line.split("\t")
        if len(columns) != 2 or not all(columns):
            raise WorkbenchError(f"{path}, line {number}: {line[:80]!r} is not CORPUS-ID<tab>LINKER-ID")
        same[columns[0]] = columns[1]
    return same
