"""Formats with a table of vectors and a file that numbers its rows: thunlp's TransE, OpenKE and DGL-KE."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kg.vectors.formats.rows import (
    PretrainedVectors,
    Row,
    damaged,
    names_in_order,
    rows_of_table,
    text_lines,
    vector_of,
)
from workbench.core.errors import WorkbenchError

ENTITY_IDS = ("entity2id.txt", "entities.tsv", "entities.dict", "entity_ids.tsv")
RELATION_IDS = ("relation2id.txt", "relations.tsv", "relations.dict", "relation_ids.tsv")
JSON_NAMES = {
    "entity": (("ent_embeddings",), ("ent_re_embeddings", "ent_im_embeddings")),
    "relation": (("rel_embeddings",), ("rel_re_embeddings", "rel_im_embeddings")),
}
"""OpenKE's names of its tables; of complex ones the real parts and the imaginary ones."""


def open_thunlp(place: Path, ids: Path | None) -> PretrainedVectors:
    """thunlp's Fast-TransX, as in the folder kg_embed of ERNIE-THU: entity2vec.vec and relation2vec.vec, text."""
    folder = place if place.is_dir() else place.parent
    entity, relation = folder / "entity2vec.vec", folder / "relation2vec.vec"
    files, entity_ids = [entity], ids or _next_to(folder, ENTITY_IDS)
    relations: Iterator[Row] = iter(())
    if relation.is_file() and (relation_ids := _found(folder, RELATION_IDS)):
        relations = _of_lines(relation_ids, relation)
        files += [relation, relation_ids]
    return PretrainedVectors([*files, entity_ids], _of_lines(entity_ids, entity), relations)


def open_openke(place: Path, ids: Path | None) -> PretrainedVectors:
    """OpenKE's parameters as JSON, with entity2id.txt next to them."""
    try:
        tables = json.loads(place.read_bytes())
    except ValueError as error:
        raise damaged(place, f"it is no JSON ({error})") from error
    entity = _of_json(tables, "entity", place)
    if entity is None:
        raise damaged(place, f"it has no table {' or '.join('+'.join(names) for names in JSON_NAMES['entity'])}")
    entity_ids, relation_ids = ids or _next_to(place.parent, ENTITY_IDS), _found(place.parent, RELATION_IDS)
    relation = _of_json(tables, "relation", place)
    if relation is None or relation_ids is None:
        return PretrainedVectors([place, entity_ids], rows_of_table(entity_ids, entity, place))
    rows = rows_of_table(entity_ids, entity, place), rows_of_table(relation_ids, relation, place)
    return PretrainedVectors([place, entity_ids, relation_ids], *rows)


def open_npy(place: Path, ids: Path | None) -> PretrainedVectors:
    """A table as .npy (DGL-KE's NAME_entity.npy, with NAME_relation.npy; OpenKE's), memory-mapped."""
    entity_ids, relation_ids = ids or _next_to(place.parent, ENTITY_IDS), _found(place.parent, RELATION_IDS)
    entities = rows_of_table(entity_ids, _npy(place), place)
    relation = place.with_name(place.name.replace("_entity.npy", "_relation.npy"))
    if relation == place or not relation.is_file() or relation_ids is None:
        return PretrainedVectors([place, entity_ids], entities)
    rows = rows_of_table(relation_ids, _npy(relation), relation)
    return PretrainedVectors([place, entity_ids, relation, relation_ids], entities, rows)


def _of_lines(ids: Path, path: Path) -> Iterator[Row]:
    names = names_in_order(ids)
    size, number = None, 0
    for number, line in text_lines(path):
        if number > len(names):
            raise damaged(path, f"it has more lines than {ids.name} has ids ({len(names)})")
        vector = vector_of(line, path, number, size)
        size = len(vector)
        yield names[number - 1], vector
    if number != len(names):
        raise damaged(path, f"it has {number} lines for the {len(names)} ids of {ids.name}")


def _of_json(tables: Any, kind: str, path: Path) -> np.ndarray | None:
    if not isinstance(tables, dict):
        return None
    for names in JSON_NAMES[kind]:
        found = [tables.get(name, tables.get(f"{name}.weight")) for name in names]
        if all(part is not None for part in found):
            try:
                return np.concatenate([np.array(part, np.float32) for part in found], axis=1)
            except (TypeError, ValueError) as error:
                raise damaged(path, f"{' and '.join(names)} are no table of numbers ({error})") from error
    return None


def _npy(path: Path) -> np.ndarray:
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise damaged(path, f"it is no array ({error})") from error


def _found(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _next_to(folder: Path, names: tuple[str, ...]) -> Path:
    found = _found(folder, names)
    if found is None:
        raise WorkbenchError(
            f"nothing in {folder} says which entity a vector belongs to ({', '.join(names)}); name such a file: --ids"
        )
    return found
