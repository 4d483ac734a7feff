"""Stored texts of the entities, relations and types of a graph, by id.

The texts of entities may be many times larger than the graph. They are in a temporary file (`$TMPDIR`), indexed by the
hashes of their ids: 16 bytes of memory a row.
"""

from __future__ import annotations

import mmap
import tempfile
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from kg.graph.strings import digest64
from pipelines.readers.reader import MalformedError, parse_row
from pipelines.readers.triples.columns import SUFFIXES, column_rows
from pipelines.sources.files import lines, plain_suffix
from pipelines.sources.json_files import read_json
from workbench.core.errors import WorkbenchError

Row = Mapping[str, Any]
LISTS = ("aliases", "types")
DESCRIPTIONS = ("extract", "description", "gloss")
"""The fields of a row that describe an entity, the longest text first."""
MEMBERS_KEPT = 1 << 16
"""Number of cached labels: a few entities are the tails of most triples."""


class TextRows:
    """Rows by id, filled once, then read; they override those of `under`, if any.

    A later row of the same id replaces the texts of the earlier ones, and its lists are appended to theirs.
    `relabelled` counts the labels that another label replaced, except those of the rows `first`, the source's own;
    `empty` counts the empty labels.
    """

    def __init__(
        self, rows: Iterable[tuple[str, Row]], under: TextRows | None = None, first: Iterable[tuple[str, Row]] = ()
    ) -> None:
        self._under = under
        hashes, ends, labels = array("Q"), array("q", [0]), array("Q")
        self.empty = 0
        with tempfile.TemporaryFile() as file:
            for given, (identifier, row) in chain(zip(repeat(False), first), zip(repeat(True), rows)):
                label = str(row.get("label") or "").strip()
                self.empty += "label" in row and not label
                labels.append(digest64(label) if label and given else 0)
                hashes.append(digest64(identifier))
                ends.append(ends[-1] + file.write(_packed(identifier, row)))
            file.flush()
            self._blob = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if hashes else b""
        self._ends = ends
        unsorted = np.frombuffer(hashes, np.uint64)
        order = np.argsort(unsorted, kind="stable")
        self._hashes, self._order = unsorted[order].data, order.astype(np.int64 if len(order) >= 2**31 else np.int32)
        self.relabelled = _relabelled(unsorted, np.frombuffer(labels, np.uint64))
        self.named = lru_cache(MEMBERS_KEPT)(self._named)

    def __getitem__(self, identifier: str) -> dict[str, Any]:
        """The row of an id; empty where there is none."""
        found = {} if self._under is None else self._under[identifier]
        wanted = digest64(identifier)
        place = bisect_left(self._hashes, wanted)
        while place < len(self._hashes) and self._hashes[place] == wanted:
            name, row = self._row(int(self._order[place]))
            if name == identifier:
                found.update({name: _joined(found.get(name), value) for name, value in row.items()})
            place += 1
        return found

    def __len__(self) -> int:
        """Number of rows, repeated ids included."""
        return len(self._order) + (0 if self._under is None else len(self._under))

    def __iter__(self) -> Iterator[str]:
        """The ids of its own rows, in their order; repeated ids come again."""
        return (self._row(number)[0] for number in range(len(self._order)))

    def _row(self, number: int) -> tuple[str, dict[str, Any]]:
        identifier, row = orjson.loads(self._blob[self._ends[number] : self._ends[number + 1]])
        return identifier, row

    def label(self, identifier: str) -> str:
        """The label of an id; the id itself without one."""
        return self.named(identifier) or identifier

    def _named(self, identifier: str) -> str:
        """The label of an id; empty without one."""
        return str(self[identifier].get("label") or "").strip()


class StatedTexts(NamedTuple):
    """A text that a source has for an entity; a `fallback` counts only without a better one."""

    entity: str
    field: str
    text: str
    fallback: bool = False


class StatedRows:
    """Rows of the same entity's texts in succession: the first label, all aliases, ...

    They are added while a source is read, stored in a temporary file, and read in their order.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # it lives as long as the rows
        self._entity = ""
        self._row: dict[str, Any] = {}
        self._spare: dict[str, str] = {}

    def add(self, said: StatedTexts) -> None:
        """Add a text."""
        if said.entity != self._entity:
            self._write()
            self._entity, self._row, self._spare = said.entity, {}, {}
        if said.field in LISTS:
            self._row.setdefault(said.field, []).append(said.text)
        else:
            (self._spare if said.fallback else self._row).setdefault(said.field, said.text)

    def __iter__(self) -> Iterator[tuple[str, Row]]:
        self._write()
        self._file.seek(0)
        for line in self._file:
            entity, row = orjson.loads(line)
            yield entity, row

    def _write(self) -> None:
        row = {**self._spare, **self._row}
        if row:
            self._file.write(_packed(self._entity, row) + b"\n")
            self._row, self._spare = {}, {}


class EntityTexts(NamedTuple):
    """Each row may have label, description, aliases, types."""

    entities: TextRows
    relations: TextRows
    types: TextRows


def rows_of_files(paths: Iterable[str | Path]) -> Iterator[tuple[str, Row]]:
    """Rows with their ids, from JSON lines with `id`, from one JSON object `{id: row}`, or from columns (TSV, CSV).

    In an object a row may be just a label or a list of types. See `pipelines.readers.triples.columns`.

    Raises:
        WorkbenchError: not JSON, or a row without `id`, or with values other than texts; names the place.
    """
    for path in map(Path, paths):
        if plain_suffix(path) == ".json":
            for name, value in read_json(path).items():
                where = f"{path.name}:{name}"
                yield name, _checked(_row(value, where), where)
            continue
        if plain_suffix(path) in SUFFIXES:
            yield from column_rows(path)
            continue
        for number, line in lines(path):
            if line.strip():
                row = parse_row(line, f"{path.name}:{number}")
                if "id" not in row:
                    raise WorkbenchError(f"{path}:{number}: a row needs the field 'id'; it has {', '.join(row)}")
                if not _is_id(row["id"]):
                    raise MalformedError("the id is no name", f"{path.name}:{number}", f"found {row['id']!r:.80}")
                yield str(row["id"]), _checked(row, f"{path.name}:{number}")


def _checked(row: Row, where: str) -> Row:
    """The row without null fields.

    Raises:
        MalformedError: a label or a description that is not a text, aliases that are not a list of texts, or types that
        are
            not ids.
    """
    for name, value in row.items():
        listed = value if isinstance(value, list) else [None]
        if name in ("label", *DESCRIPTIONS):
            fits, allowed = isinstance(value, str), "a text"
        elif name == "aliases":
            fits, allowed = all(isinstance(each, str) for each in listed), "a list of texts"
        else:
            fits, allowed = name != "types" or all(map(_is_id, listed)), "a list of type ids"
        if value is not None and not fits:
            raise MalformedError(
                f"field {name!r} has the wrong type", where, f"found {value!r:.80}; allowed: {allowed}"
            )
    return {name: value for name, value in row.items() if value is not None}


def _is_id(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))


def _relabelled(ids: np.ndarray, labels: np.ndarray) -> int:
    """The number of labels that too many ids share, from hashes by row; rows without a label have a 0."""
    ids, labels = ids[labels != 0], labels[labels != 0]
    order = np.lexsort((labels, ids))
    ids, labels = ids[order], labels[order]
    return int(((ids[1:] == ids[:-1]) & (labels[1:] != labels[:-1])).sum())


def _joined(earlier: Any, later: Any) -> Any:
    return list(dict.fromkeys([*earlier, *later])) if isinstance(earlier, list) and isinstance(later, list) else later


def _packed(identifier: str, row: Row) -> bytes:
    try:
        return orjson.dumps([identifier, row])
    except TypeError as error:
        raise WorkbenchError(f"the texts of {identifier!r} cannot be stored ({error}); fix them") from error


def _row(value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, str):
        return {"label": value}
    if isinstance(value, list):
        return {"types": value}
    if isinstance(value, dict):
        return value
    raise WorkbenchError(f"{where}: expected an object, a label or a list of types; found {type(value).__name__}")
