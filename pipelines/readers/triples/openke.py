"""The folders of OpenKE (Han et al. 2018): entity2id.txt, relation2id.txt, train2id.txt with `head tail relation`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.readers.reader import MalformedError, Peek, parse_text
from pipelines.readers.triples.graph import Found, GraphReader
from pipelines.readers.triples.texts import EntityTexts, Row, TextRows, rows_of_files
from pipelines.sources.files import lines
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Word

NAMES = ("entity2id.txt", "relation2id.txt")


@dataclass(frozen=True)
class Openke(GraphReader):
    """`part` names the file of triples to read: `train` by default, so that evaluation triples stay unseen.

    Each file begins with the number of its rows. The ids are the names in entity2id.txt, and all of them are kept, also
    of triples in the other files (`described: false` drops the entities without triples).
    """

    part: Word = "train"

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return source.is_folder and {*NAMES} <= source.names

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        own = [folder / name for folder in paths for name in (*NAMES, f"{self.part}2id.txt")]
        return [*own, *self.text_files(paths)]

    def triples(self, paths: Sequence[Path]) -> Iterator[Found]:
        for folder in paths:
            entities, relations = (dict(_numbered(folder / name)) for name in NAMES)
            for row in _counted(self._file(folder)):
                yield row if isinstance(row, MalformedError) else _triple(*row, entities, relations)

    def texts(self, paths: Sequence[Path], said: Iterable[tuple[str, Row]]) -> EntityTexts:
        """The texts of the named files; an entity without one is named by entity2id.txt."""
        names = ((name, {"label": name}) for folder in paths for _, name in _numbered(folder / NAMES[0]))
        entities = TextRows(rows_of_files([*self.entities, *self.types]), first=names)
        return EntityTexts(entities, *(TextRows(rows_of_files(files)) for files in (self.relations, self.type_names)))

    def _file(self, folder: Path) -> Path:
        path = folder / f"{self.part}2id.txt"
        if not path.is_file():
            parts = sorted({p.name.removesuffix("2id.txt") for p in folder.glob("*2id.txt")} - {"entity", "relation"})
            raise WorkbenchError(f"{folder} has no {path.name}; allowed for part: {', '.join(parts) or 'none'}")
        return path


def _counted(path: Path) -> Iterator[tuple[list[str], str] | MalformedError]:
    """The columns of each row and their place; a last error if the number of rows is not that of the first line."""
    stated, rows = None, 0
    for number, line in lines(path):
        where = f"{path.name}:{number}"
        try:
            columns = parse_text(line, where).split()
        except MalformedError as error:
            yield error
            continue
        if stated is None:
            stated = _number(columns, where)
        elif columns:
            rows += 1
            yield columns, where
    if stated != rows:
        yield MalformedError("the number of rows differs from the first line", path.name, f"{stated} against {rows}")


def _numbered(path: Path) -> Iterator[tuple[str, str]]:
    """Number and name of each row `name<tab>number`.

    Raises:
        MalformedError: a row is something else.
    """
    for row in _counted(path):
        if isinstance(row, MalformedError):
            raise row
        columns, where = row
        if len(columns) < 2 or not columns[-1].isdecimal():
            raise MalformedError("expected name<tab>number", where, repr(" ".join(columns)[:80]))
        yield columns[-1], " ".join(columns[:-1])


def _number(columns: Sequence[str], where: str) -> int:
    if len(columns) != 1 or not columns[0].isdecimal():
        raise MalformedError("the first line must be the number of rows", where, repr(" ".join(columns)[:80]))
    return int(columns[0])


def _triple(columns: list[str], where: str, entities: dict[str, str], relations: dict[str, str]) -> Found:
    if len(columns) != 3:
        return MalformedError("expected head, tail and relation", where, f"found {len(columns)} columns")
    head, tail, relation = columns
    for number in (head, tail):
        if number not in entities:
            return MalformedError("an entity that entity2id.txt does not number", where, repr(number))
    if relation not in relations:
        return MalformedError("a relation that relation2id.txt does not number", where, repr(relation))
    return entities[head], relations[relation], entities[tail]
