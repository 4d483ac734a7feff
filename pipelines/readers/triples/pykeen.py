"""pykeen's folders (Ali et al., JMLR 2021): the triples of `TriplesFactory.to_path_binary` and of `save_to_directory`.

A folder has `numeric_triples.tsv.gz` (head, relation, tail in numbers), `entity_to_id.tsv.gz`, `relation_to_id.tsv.gz`
(id, label), each with a header, compressed or not; the result of a pipeline has one as `training_triples`. Nothing
pickled is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.readers.reader import MalformedError, Peek, parse_text
from pipelines.readers.triples.graph import Found, GraphReader
from pipelines.sources.files import lines

TRIPLES, ENTITIES, RELATIONS = "numeric_triples.tsv", "entity_to_id.tsv", "relation_to_id.tsv"
WITHIN = "training_triples"


@dataclass(frozen=True)
class Pykeen(GraphReader):
    """The labels of pykeen are the ids of the graph; entities without triples are not in it."""

    @classmethod
    def detect(cls, source: Peek) -> bool:
        return source.is_folder and _file(_folder(source.path), TRIPLES).is_file()

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        own = [_file(_folder(path), name) for path in paths for name in (TRIPLES, ENTITIES, RELATIONS)]
        return [*own, *self.text_files(paths)]

    def triples(self, paths: Sequence[Path]) -> Iterator[Found]:
        for folder in map(_folder, paths):
            entities, relations = (dict(_rows(_file(folder, name), 2)) for name in (ENTITIES, RELATIONS))
            for where, columns in _numbers(_file(folder, TRIPLES)):
                yield _triple(columns, where, entities, relations)


def _folder(path: Path) -> Path:
    return path / WITHIN if (path / WITHIN).is_dir() else path


def _file(folder: Path, name: str) -> Path:
    """A file with or without pykeen's compression."""
    packed = folder / f"{name}.gz"
    return packed if packed.is_file() else folder / name


def _numbers(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The place and the columns of each row below the header."""
    for number, line in lines(path):
        where = f"{path.name}:{number}"
        columns = parse_text(line, where).split("\t")
        if number > 1 and any(columns):
            yield where, columns


def _rows(path: Path, count: int) -> Iterator[tuple[str, str]]:
    for where, columns in _numbers(path):
        if len(columns) != count:
            raise MalformedError("expected id<tab>label", where, f"found {len(columns)} columns")
        yield columns[0], columns[1]


def _triple(columns: list[str], where: str, entities: dict[str, str], relations: dict[str, str]) -> Found:
    if len(columns) != 3:
        return MalformedError("expected head, relation and tail", where, f"found {len(columns)} columns")
    head, relation, tail = columns
    unknown = [name for name, known in ((head, entities), (relation, relations), (tail, entities)) if name not in known]
    if unknown:
        return MalformedError("a number that no label has", where, repr(unknown[0]))
    return entities[head], relations[relation], entities[tail]
