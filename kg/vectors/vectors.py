"""Vectors of entities and relations: kept in one safetensors file with the ids they belong to.

The file holds `entity` [entities, size] and `relation` [relations, size] float32, `entity_ids` and `relation_ids`
(lists of strings as JSON, in bytes), and in its metadata how the vectors were made and a checksum of all that. A model
with complex vectors (RotatE, ComplEx) gives their real and imaginary parts in turn.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from workbench.errors import WorkbenchError
from workbench.files.checksums import matches
from workbench.files.drafts import sha256_of
from workbench.files.identities import note
from workbench.runs.weights import save_tensors

TENSORS = ("entity", "relation", "entity_ids", "relation_ids")
CHECKSUM = "sha256"


@dataclass(frozen=True)
class Vectors:
    """`vectors` [entities, size] by row of `ids`, `relations` [relations, size] by row of `relation_ids`, float32."""

    ids: list[str]
    vectors: Tensor
    relation_ids: list[str]
    relations: Tensor
    provenance: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each entity id."""
        return {entity: row for row, entity in enumerate(self.ids)}

    @property
    def of_shuffled_graph(self) -> bool:
        """Whether they were trained on the false facts of a shuffled graph."""
        return (self.provenance.get("graph") or {}).get("shuffled") is not None


def save_vectors(vectors: Vectors, path: str | Path) -> None:
    """Write the file, whole or not at all."""
    path = Path(path)
    tensors = {
        "entity": vectors.vectors.contiguous(),
        "relation": vectors.relations.contiguous(),
        "entity_ids": _packed(vectors.ids),
        "relation_ids": _packed(vectors.relation_ids),
    }
    provenance = json.dumps(vectors.provenance)
    save_tensors(path, tensors, {"format": "pt", "provenance": provenance, CHECKSUM: _checksum(tensors, provenance)})


def load_vectors(path: str | Path) -> Vectors:
    """The vectors of a file; the tensors stay memory-mapped until they are used.

    Raises:
        WorkbenchError: there is no such file, it does not hold vectors with ids, or it was changed or damaged.
    """
    path = Path(path)
    if not path.is_file():
        raise WorkbenchError(
            f"there is no file {path} with entity vectors; `workbench prepare vectors GRAPH --output {path}` trains "
            "them"
        )
    tensors, metadata = _read(path)
    checksum = metadata.get(CHECKSUM)
    if checksum is not None and not matches(path, checksum, lambda p: _checksum_of(*_read(p))):
        raise WorkbenchError(f"{path} was changed or damaged after it was written; train the vectors again")
    try:
        ids, relation_ids = _unpacked(tensors["entity_ids"]), _unpacked(tensors["relation_ids"])
        provenance = json.loads(metadata.get("provenance", "{}"))
    except ValueError as error:
        raise WorkbenchError(f"{path} is damaged: its ids are no JSON ({error}); train the vectors again") from error
    found = Vectors(ids, tensors["entity"], relation_ids, tensors["relation"], provenance)
    if found.vectors.ndim != 2 or len(ids) != len(found.vectors):
        raise WorkbenchError(
            f"{path} has vectors {list(found.vectors.shape)} and {len(ids)} entity ids; allowed: [entities, size] and "
            "an id for each"
        )
    note("vectors of a shuffled graph" if found.of_shuffled_graph else "vectors", path, checksum or sha256_of(path))
    return found


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors, memory-mapped, and the metadata of a file."""
    try:
        with safe_open(path, framework="pt") as file:
            missing = sorted(set(TENSORS) - set(file.keys()))
            if missing:
                raise WorkbenchError(
                    f"{path} lacks {', '.join(missing)} (found {', '.join(sorted(file.keys()))}); entity vectors are "
                    "made by `workbench prepare vectors`"
                )
            return {name: file.get_tensor(name) for name in TENSORS}, file.metadata() or {}
    except SafetensorError as error:
        raise WorkbenchError(f"{path} is no safetensors file, or damaged ({error})") from error


def _checksum_of(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    return _checksum(tensors, metadata.get("provenance", ""))


def _checksum(tensors: Mapping[str, Tensor], provenance: str) -> str:
    """The SHA-256 checksum of the tensors, their types and shapes, and the provenance."""
    state = hashlib.sha256(provenance.encode())
    for name in TENSORS:
        tensor = tensors[name].contiguous()
        state.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        state.update(tensor.flatten().view(torch.uint8).numpy().data)
    return state.hexdigest()


def _packed(ids: list[str]) -> Tensor:
    return torch.frombuffer(bytearray(json.dumps(ids, ensure_ascii=False).encode()), dtype=torch.uint8)


def _unpacked(packed: Tensor) -> list[str]:
    """Raises ValueError where it is no list of strings as JSON."""
    names = json.loads(packed.numpy().tobytes())
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("not a list of strings")
    return names
