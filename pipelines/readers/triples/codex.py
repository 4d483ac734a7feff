"""A folder with train.txt, valid.txt, test.txt and texts next to them: CoDEx (Safavi and Koutra 2020), WN18RR, FB15k.

Texts are CoDEx's JSON, or the columns of kg-bert's entity2text.txt, FB15k's mid2name and WordNet's definitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.readers.reader import Peek
from pipelines.readers.triples.graph import Found, GraphReader
from pipelines.readers.triples.texts import EntityTexts, Row, TextRows, rows_of_files
from pipelines.readers.triples.triples_tsv import tab_separated
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import real_path
from workbench.core.options.bounds import Word

ENTITIES = (
    "entity_text*.jsonl",
    "entities.jsonl",
    "entities.json",
    "entity2text.txt",
    "entity2textlong.txt",
    "*mid2name.t[sx][vt]",
    "*mid2description.t[sx][vt]",
    "*definitions.txt",
)
TYPES = ("entity_types.jsonl", "entity2types.json")
RELATIONS = ("relations.jsonl", "relations.json", "relation2text.txt")
TYPE_NAMES = ("types.jsonl", "types.json")


@dataclass(frozen=True)
class Codex(GraphReader):
    """`part` names the file of triples to read: `train` by default, so that evaluation triples stay unseen.

    Files with texts are found in the folder and the one above it (entities, their types, relations, names of types);
    files named by options override them.
    """

    part: Word = "train"

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return source.is_folder and "train.txt" in source.names

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        return [*(self._file(folder) for folder in paths), *self.text_files(paths)]

    def triples(self, paths: Sequence[Path]) -> Iterator[Found]:
        return tab_separated([self._file(folder) for folder in paths], ())

    def text_files(self, paths: Sequence[Path]) -> list[Path]:
        patterns = (*ENTITIES, *RELATIONS, *TYPES, *TYPE_NAMES)
        return [*super().text_files(paths), *_next_to(paths, patterns)]

    def texts(self, paths: Sequence[Path], said: Iterable[tuple[str, Row]]) -> EntityTexts:
        """The texts of the named files; those next to the triples fill the gaps."""
        alongside = (_next_to(paths, patterns) for patterns in ((*ENTITIES, *TYPES), RELATIONS, TYPE_NAMES))
        named = ([*self.entities, *self.types], self.relations, self.type_names)
        return EntityTexts(
            *(TextRows(rows_of_files(b), first=rows_of_files(a)) for a, b in zip(alongside, named, strict=True))
        )

    def _file(self, folder: Path) -> Path:
        path = folder / f"{self.part}.txt"
        if not path.is_file():
            parts = sorted(p.stem for p in folder.glob("*.txt"))
            raise WorkbenchError(
                f"{folder} has no triples of {self.part!r}; allowed for part: {', '.join(parts) or 'none'}"
            )
        return path


def _next_to(paths: Sequence[Path], patterns: Sequence[str]) -> list[Path]:
    """Files of these names in the folders and the folders above them, each once."""
    found: dict[Path, None] = {}
    for folder in paths:
        for place in (folder, real_path(folder).parent):
            for pattern in patterns:
                found.update(dict.fromkeys(sorted(place.glob(pattern))))
    return list(found)
