"""PyTorch-BigGraph's checkpoints: HDF5, a file for each partition of the entities of a type.

Lerer et al., "PyTorch-BigGraph: A Large-scale Graph Embedding System", MLSys 2019; the layout is that of its page
"I/O format". With `global_emb`, its default, an entity's vector is its row plus one vector of all entities of its type,
which lies in the model's file; that is what its export to text writes, too. Relations are parameters of an operator on
tails (or on both sides), not vectors of the entities' space, and are not taken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kg.vectors.formats.rows import PretrainedVectors, Row, damaged
from workbench.core.errors import WorkbenchError

_PARTITION = re.compile(r"embeddings_(?P<type>.+)_(?P<part>\d+)(?P<version>\.v\d+)?\.h5")
BLOCK = 4096
"""Rows that are read at once."""


class _PartitionFile(NamedTuple):
    """A file of vectors, the file with the names of its rows, and the model's, where there is one."""

    vectors: Path
    type: str
    names: Path
    model: Path | None


def open_pbg_checkpoint(place: Path, ids: Path | None) -> PretrainedVectors:
    """A checkpoint's folder, or one of its files embeddings_TYPE_PART.vN.h5.

    Args:
        ids: the folder of the entities (`entity_path`) with entity_names_TYPE_PART.json, or such a file; by default
            they are looked for next to the vectors.
    """
    import_h5py(place)
    parts = [_partition_file(path, ids) for path in (_current(place) if place.is_dir() else [place])]
    if ids is not None and ids.is_file() and len(parts) > 1:
        raise WorkbenchError(
            f"{ids} names the entities of one partition, {place} has {len(parts)}; name their folder: --ids"
        )
    read = [path for part in parts for path in (part.vectors, part.names, part.model) if path is not None]
    return PretrainedVectors(list(dict.fromkeys(read)), (row for part in parts for row in _rows(part)))


def is_pbg_checkpoint(folder: Path) -> bool:
    """Whether there are vectors of PyTorch-BigGraph in a folder."""
    return any(_PARTITION.fullmatch(path.name) for path in folder.glob("embeddings_*.h5"))


def import_h5py(place: Path) -> Any:
    """
    Raises:
        WorkbenchError: it is not installed.
    """
    try:
        import h5py
    except ModuleNotFoundError as error:
        raise WorkbenchError(
            f"{place} is HDF5, which needs the package 'h5py': pip install 'pretraining-workbench[kg]'"
        ) from error
    return h5py


def _current(folder: Path) -> list[Path]:
    """The files of vectors of the version that a checkpoint's folder names, by type and part."""
    named = folder / "checkpoint_version.txt"
    suffix = f".v{named.read_text('utf-8').strip()}" if named.is_file() else None
    found = {path: match for path in folder.glob("embeddings_*.h5") if (match := _PARTITION.fullmatch(path.name))}
    current = [path for path, match in found.items() if suffix is None or match["version"] == suffix]
    versions = sorted({match["version"] or "" for match in found.values()})
    if suffix is None and len(versions) > 1:
        raise WorkbenchError(f"{folder} has several versions ({', '.join(versions)}), and no {named.name} says which")
    if not current:
        what = f"of version {suffix}, which {named.name} names" if found else "embeddings_TYPE_PART.vN.h5"
        raise WorkbenchError(f"{folder} has no vectors {what}; found: {', '.join(versions) or 'none'}")
    return sorted(current, key=lambda path: (found[path]["type"], int(found[path]["part"])))


def _partition_file(path: Path, ids: Path | None) -> _PartitionFile:
    match = _PARTITION.fullmatch(path.name)
    if match is None:
        raise WorkbenchError(f"{path} is no file of PyTorch-BigGraph's vectors, which are embeddings_TYPE_PART.vN.h5")
    name = f"entity_names_{match['type']}_{match['part']}.json"
    names = ids if ids is not None and ids.is_file() else (ids or path.parent) / name
    if not names.is_file():
        raise WorkbenchError(
            f"there is no {names}, which says which entity a row of {path.name} is; name the folder of the entities "
            "(entity_path of the training): --ids"
        )
    model = path.with_name(f"model{match['version'] or ''}.h5")
    return _PartitionFile(path, match["type"], names, model if model.is_file() else None)


def _rows(part: _PartitionFile) -> Iterator[Row]:
    path, h5py = part.vectors, import_h5py(part.vectors)
    names = _names(part.names)
    try:
        with h5py.File(path, "r") as file:
            table = _table(file, "embeddings", path, h5py)
            if table.ndim != 2 or len(table) != len(names):
                expected = f"[{len(names)}, size] expected ({part.names.name})"
                raise damaged(path, f"its vectors are {list(table.shape)}, {expected}")
            shared = _of_all(part, _has_global(file), table.shape[1], h5py)
            for start in range(0, len(names), BLOCK):
                yield from zip(names[start : start + BLOCK], table[start : start + BLOCK] + shared, strict=True)
    except (OSError, RuntimeError) as error:
        raise damaged(path, f"it cannot be read as HDF5 ({error})") from error


def _of_all(part: _PartitionFile, has_global: bool, size: int, h5py: Any) -> np.ndarray:
    """The vector that all entities of the type share [size] float32."""
    key, model = f"model/entities/{part.type}/global_embedding", part.model
    if model is None:
        if has_global:
            raise WorkbenchError(
                f"{part.vectors} was trained with a vector for all entities of a type (global_emb), and the file that "
                f"has it is not there: {part.vectors.with_name('model' + ''.join(part.vectors.suffixes))}"
            )
        return np.zeros(size, np.float32)
    try:
        with h5py.File(model, "r") as file:
            if key not in file and not has_global:
                return np.zeros(size, np.float32)
            found = np.asarray(_table(file, key, model, h5py)[...], np.float32)
    except (OSError, RuntimeError) as error:
        raise damaged(model, f"it cannot be read as HDF5 ({error})") from error
    if found.shape != (size,):
        raise damaged(model, f"{key} is {list(found.shape)}, [{size}] expected")
    return found


def _has_global(file: Any) -> bool:
    """Whether all entities of a type share a vector, by the configuration in a file. False if it has none."""
    try:
        config = json.loads(file.attrs.get("config/json", "{}"))
    except (TypeError, ValueError):
        return False
    return isinstance(config, dict) and config.get("global_emb") is True


def _table(file: Any, key: str, path: Path, h5py: Any) -> Any:
    table = file.get(key)
    if not isinstance(table, h5py.Dataset) or table.dtype.kind != "f":
        raise damaged(path, f"it has no table of numbers {key!r}; it has {', '.join(sorted(file)) or 'nothing'}")
    if table.external or table.is_virtual or table.file.filename != file.filename:  # any file could be named there
        raise damaged(path, f"{key!r} is stored in another file, which is not opened")
    return table


def _names(path: Path) -> list[str]:
    try:
        names = json.loads(path.read_bytes())
    except ValueError as error:
        raise damaged(path, f"it is no JSON ({error})") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise damaged(path, "it is no list of names")
    return names
