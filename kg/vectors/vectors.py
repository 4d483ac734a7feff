"""Vectors of entities and relations: kept in one safetensors file with the ids they belong to.

The file holds `entity` [entities, size] and `relation` [relations, size] float32; the ids of both, which stay on disk
like the vectors (`kg.graph.strings`): `entity_ids` (UTF-8, one after the other), `entity_ids.spans` [2, entities]
(where each begins and ends) and their index `entity_ids.hashes`, `entity_ids.order`; and in its metadata how the
vectors were made and a checksum of all that. A vector of d complex numbers (RotatE, ComplEx) has size 2d: all real
parts and then all imaginary ones. What a model keeps of an entity or a relation next to the first vector, and needs to
score triples (SimplE, CP), is in `more.entity.1`, `more.relation.1`, ...
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from kg.graph.strings import RowsOf, StringTable, string_arrays
from workbench.components.build_context import note
from workbench.core.errors import WorkbenchError, quoted
from workbench.core.files.checksums import matches
from workbench.core.files.drafts import sha256_of
from workbench.core.files.stores import path_at
from workbench.runs.weights import save_tensors
from workbench.sequences.entities import IdSpace, space_of

STORED_PARTS = {"blob": "", "spans": ".spans", "hashes": ".hashes", "order": ".order"}
IDS = {kind: {part: f"{kind}_ids{ending}" for part, ending in STORED_PARTS.items()} for kind in ("entity", "relation")}
TENSORS = ("entity", "relation", *(name for names in IDS.values() for name in names.values()))
MORE = "more."
CHECKSUM = "sha256"
TRAINED_ON = "trained_on"
"""Under which the provenance of vectors that a run made names the graphs that the run was trained on: digests by place.
(`graph` is then the one whose entities they are of.)"""


@dataclass(frozen=True)
class GraphVectors:
    """`vectors` [entities, size] by row of `ids`, `relations` [relations, size] by row of `relation_ids`, float32.

    `identity` is the checksum of those that come from a file; `more` has further vectors by their name (`entity.1`).
    """

    ids: Sequence[str]
    vectors: Tensor
    relation_ids: Sequence[str]
    relations: Tensor
    provenance: dict[str, Any] = field(default_factory=dict)
    identity: str = ""
    more: dict[str, Tensor] = field(default_factory=dict)

    @cached_property
    def rows(self) -> Mapping[str, int]:
        """The row of each entity id."""
        if isinstance(self.ids, StringTable):
            return RowsOf(self.ids)
        return {entity: row for row, entity in enumerate(self.ids)}

    @property
    def control(self) -> str | None:
        """The control under whose false facts they were trained: shuffled-kg, permuted-kg, or none."""
        graph = self.provenance.get("graph") or {}
        return graph.get("control") or ("shuffled-kg" if graph.get("shuffled") is not None else None)

    @property
    def space(self) -> IdSpace | None:
        """The namespace of the entities' ids; None for older vectors without a noted one."""
        graph = self.provenance.get("graph") or {}
        noted = graph.get("space")
        return space_of({"name": graph.get("name") or str(graph.get("path")), **noted}) if noted else None


def save_vectors(vectors: GraphVectors, path: str | Path) -> None:
    """Write the file, whole or not at all."""
    path = Path(path)
    tensors = {
        "entity": vectors.vectors.contiguous(),
        "relation": vectors.relations.contiguous(),
        **_packed("entity", vectors.ids),
        **_packed("relation", vectors.relation_ids),
        **{f"{MORE}{name}": tensor.contiguous() for name, tensor in vectors.more.items()},
    }
    provenance = json.dumps(vectors.provenance)
    save_tensors(path, tensors, {"format": "pt", "provenance": provenance, CHECKSUM: _checksum(tensors, provenance)})


def check_ending(path: str | Path) -> Path:
    """The place of a new file.

    Raises:
        WorkbenchError: its name does not end as it has to.
    """
    if Path(path).suffix != ".safetensors":
        raise WorkbenchError(f"vectors are written to a .safetensors file; {path} has another ending")
    return Path(path)


def load_vectors(path: str | Path) -> GraphVectors:
    """The vectors of a file, here or at a URL; tensors and ids stay memory-mapped until they are used.

    Raises:
        WorkbenchError: there is no such file, it does not hold vectors with ids, or it was changed or damaged.
    """
    path = path_at(path)
    if not path.is_file():
        raise WorkbenchError(
            f"there is no file {path} with entity vectors; `workbench prepare vectors GRAPH --output {quoted(path)}` "
            "trains them"
        )
    tensors, metadata = _read(path)
    checksum = metadata.get(CHECKSUM)
    if checksum is not None and not matches(path, checksum, lambda p: _checksum_of(*_read(p))):
        raise WorkbenchError(f"{path} was changed or damaged after it was written; train the vectors again")
    try:
        provenance = json.loads(metadata.get("provenance", "{}"))
    except ValueError as error:
        raise WorkbenchError(f"{path} is damaged: its provenance is no JSON ({error}); train them again") from error
    ids, relation_ids = _unpacked("entity", tensors), _unpacked("relation", tensors)
    identity = checksum or sha256_of(path)
    more = {name.removeprefix(MORE): tensor for name, tensor in tensors.items() if name.startswith(MORE)}
    found = GraphVectors(ids, tensors["entity"], relation_ids, tensors["relation"], provenance, identity, more)
    if found.vectors.ndim != 2 or len(ids) != len(found.vectors):
        raise WorkbenchError(
            f"{path} has vectors {list(found.vectors.shape)} and {len(ids)} entity ids; allowed: [entities, size] and "
            "an id for each"
        )
    note(
        "vectors" if found.control is None else f"vectors of a {found.control.removesuffix('-kg')} graph",
        path,
        identity,
    )
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
            more = sorted(name for name in file.keys() if name.startswith(MORE))  # noqa: SIM118
            return {name: file.get_tensor(name) for name in (*TENSORS, *more)}, file.metadata() or {}
    except SafetensorError as error:
        raise WorkbenchError(
            f"{path} is no safetensors file, or damaged ({error}); train the vectors again (workbench prepare vectors)"
        ) from error


def _checksum_of(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    return _checksum(tensors, metadata.get("provenance", ""))


def _checksum(tensors: Mapping[str, Tensor], provenance: str) -> str:
    """The SHA-256 checksum of the tensors, their types and shapes, and the provenance."""
    state = hashlib.sha256(provenance.encode())
    for name in (*TENSORS, *sorted(name for name in tensors if name.startswith(MORE))):
        tensor = tensors[name]
        state.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        state.update(np.ascontiguousarray(tensor.numpy()).data)
    return state.hexdigest()


def _packed(kind: str, ids: Sequence[str]) -> dict[str, Tensor]:
    arrays = string_arrays(ids)
    arrays["hashes"] = arrays["hashes"].view(np.int64)  # safetensors knows no unsigned ones
    return {name: torch.from_numpy(arrays[part].copy()) for part, name in IDS[kind].items()}


def _unpacked(kind: str, tensors: Mapping[str, Tensor]) -> StringTable:
    blob, spans, hashes, order = (tensors[name].numpy() for name in IDS[kind].values())
    return StringTable(blob.data, spans, hashes.view(np.uint64), order)
