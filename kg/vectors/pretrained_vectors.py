"""Taking pretrained vectors over: those of a graph's entities and relations, under the graph's ids."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kg.graph.store import GraphStore
from kg.graph.strings import StringTable
from kg.vectors.formats.format_finder import open_pretrained
from kg.vectors.formats.rows import Row, text_lines
from kg.vectors.mapping import fit, words_of
from kg.vectors.options import ImportOptions
from kg.vectors.vectors import GraphVectors, check_ending, save_vectors
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import sha256_of
from workbench.core.local_copies import with_urls

TITLE = "ENTITY/"
"""How wikipedia2vec begins the keys of entities, which are titles of articles with "_" for spaces."""
_SPACE = re.compile(r"\s")


def import_vectors(store: GraphStore, place: str | Path, output: str | Path, options: ImportOptions) -> GraphVectors:
    """Write those of the vectors at `place` that belong to the graph to the file `output`.

    A key is an entity's if it is its id, if `options.keys` says so, or if it is a title (`ENTITY/...`) that is its id
    or that one entity alone has as its label. Where there are titles of the graph's entities, keys without are words,
    although they may be spelt as an id. Entities without a vector have no row; the provenance counts them. With
    `options.map_to` they are mapped into the space of a model's words (`kg.vectors.mapping`).

    Raises:
        WorkbenchError: the vectors are damaged, of no known format, none is an entity's, or they cannot be mapped.
    """
    output = check_ending(output)
    found = open_pretrained(Path(place), options.format, options.ids)
    row_of = _rows_by_key(store, options.keys)
    ids, vectors, titled = _taken(found.entities, store.ids, row_of, place)
    if not ids:
        raise WorkbenchError(
            f"none of the vectors of {place} is an entity's of the graph {store.path}, whose ids look like "
            f"{', '.join(map(repr, store.ids[:3]))}; --keys FILE says which key is which id"
        )
    relation_ids, relations, _ = _taken(found.relations, store.relation_ids, store.relation_ids.find, place)
    mapped: dict[str, Any] = {}
    if options.map_to is not None:
        linear, mapped["mapped"] = _map(options.map_to, Path(place), options, (lambda key: -1) if titled else row_of)
        vectors = vectors @ linear
        relations = relations @ linear if len(relations) else np.zeros((0, vectors.shape[1]), np.float32)
    counts = {"found": len(ids), "missing": store.num_entities - len(ids), "size": int(vectors.shape[1])}
    provenance: dict[str, Any] = {
        "imported": {str(path): sha256_of(path) for path in [*found.files, *([options.keys] if options.keys else [])]},
        "entities": counts,
        "relations": {"found": len(relation_ids), "missing": store.num_relations - len(relation_ids)},
        "graph": {"path": with_urls(str(store.path)), "shuffled": None, **store.meta},
        **mapped,
    }
    made = GraphVectors(ids, torch.from_numpy(vectors), relation_ids, torch.from_numpy(relations), provenance)
    save_vectors(made, output)
    return made


def _map(
    model: Path, place: Path, options: ImportOptions, row_of: Callable[[str], int]
) -> tuple[np.ndarray, dict[str, Any]]:
    """The map of the vectors into the space of a model's words [size, width], and what it was built from.

    Args:
        row_of: the row of an entity by its key. These keys and titles are no words.
    """
    words = words_of(model)
    rows = open_pretrained(place, options.format, options.ids).entities
    linear = fit(((key, vector) for key, vector in rows if not key.startswith(TITLE) and row_of(key) < 0), words, place)
    return linear.weight, {"to": words.read, "words": linear.words, "explained": linear.explained}


def _taken(
    rows: Iterable[Row], names: StringTable, row_of: Callable[[str], int], place: str | Path
) -> tuple[list[str], np.ndarray, bool]:
    """The ids with a vector, in the graph's order, the vectors [ids, size] float32, and whether titles had them."""
    table = np.zeros((0, 0), np.float32)
    given = np.zeros(len(names), bool)
    spelt = np.zeros(len(names), bool)  # given by a key that is an id, which may be a word
    titled = False
    for key, vector in rows:
        row, is_title = row_of(key), key.startswith(TITLE)
        if row < 0:
            continue
        if is_title and not titled:
            titled, given = True, given & ~spelt
        is_spelt = not is_title and key == names[row]
        if titled and is_spelt:
            continue
        if not np.isfinite(vector).all():
            raise WorkbenchError(f"the vector of {key!r} in {place} has numbers that are not finite")
        if given[row]:
            raise WorkbenchError(f"{place} has several vectors of {names[row]!r}, the last under the key {key!r}")
        if not len(table):
            table = np.zeros((len(names), len(vector)), np.float32)  # the system allocates pages when they are written
        table[row], given[row], spelt[row] = vector, True, is_spelt
    kept = np.flatnonzero(given)
    return [names[row] for row in kept.tolist()], table if len(kept) == len(table) else table[kept], titled


def _rows_by_key(store: GraphStore, keys: Path | None) -> Callable[[str], int]:
    """The row of the entity that a key means, -1 for none."""
    named, titles = _named(keys), _Titles(store)

    def find(key: str) -> int:
        if key in named:
            return store.ids.find(named[key])
        if key.startswith(TITLE):
            return titles.rows.get(underscored(key.removeprefix(TITLE)), -1)
        return store.ids.find(key)

    return find


class _Titles:
    """The row of each id, and of each label that one entity alone has, collected when a title first asks for it."""

    def __init__(self, store: GraphStore) -> None:
        self.store = store

    @cached_property
    def rows(self) -> dict[str, int]:
        labels = [underscored(self.store.label_of(row)) for row in range(self.store.num_entities)]
        counts = Counter(labels)
        titles = {label: row for row, label in enumerate(labels) if label and counts[label] == 1}
        return titles | {underscored(entity): row for row, entity in enumerate(self.store.ids)}


def underscored(name: str) -> str:
    """A name as a key of a text whose columns are separated by spaces."""
    return _SPACE.sub("_", name)


def _named(path: Path | None) -> dict[str, str]:
    named: dict[str, str] = {}
    for number, line in text_lines(path) if path else ():
        columns = line.split("\t")
        if len(columns) != 2:
            raise WorkbenchError(f"{path}, line {number}: {len(columns)} columns; a line is a key, a tab and an id")
        named[columns[0]] = columns[1]
    return named
