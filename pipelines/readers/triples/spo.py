"""The .spo files of K-BERT (Liu et al. 2020): `subject<tab>predicate<tab>object`, all of them words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pipelines.readers.triples.graph import Found, GraphReader
from pipelines.readers.triples.triples_tsv import tab_separated


@dataclass(frozen=True)
class Spo(GraphReader):
    """A word is its own id and label."""

    words: ClassVar[bool] = True
    suffixes: ClassVar[tuple[str, ...]] = (".spo",)

    def triples(self, paths: Sequence[Path]) -> Iterator[Found]:
        return tab_separated(paths, self.suffixes)
