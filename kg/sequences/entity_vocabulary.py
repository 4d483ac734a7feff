"""The entities that are tokens of their own, in one file: `prepare entity-vocabulary` counts them.

The rows of a table of entity tokens are those of LUKE's released code (Yamada et al., arXiv:2010.01057): padding, which
nothing here uses, unknown, the mask, and then the entities, the most frequent first. The file holds their ids
(`kg.graph.strings`), which stay on disk, and how often each was linked.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from kg.graph.strings import StringTable, string_arrays
from workbench.components.build_context import note
from workbench.core.errors import WorkbenchError, quoted
from workbench.core.files.drafts import sha256_of
from workbench.runs.weights import save_tensors
from workbench.sequences.entities import Entities

KIND = "entity vocabulary"
SPECIAL = ("[PAD]", "[UNK]", "[MASK]")
MASK = SPECIAL.index("[MASK]")
IDS = ("blob", "spans", "hashes", "order")


class EntityVocabulary:
    """The row of each entity; `len` is the number of rows, the special ones included."""

    def __init__(self, entities: StringTable, place: str) -> None:
        self.entities, self.place = entities, place

    def __len__(self) -> int:
        return len(SPECIAL) + len(self.entities)

    def row(self, entity: str) -> int | None:
        """None for one that the vocabulary lacks."""
        found = self.entities.find(entity)
        return None if found < 0 else len(SPECIAL) + found

    def listed(self) -> Entities:
        """Its entities, and the file."""
        return Entities(self.place, self.entities)

    @classmethod
    def open(cls, path: str | Path) -> EntityVocabulary:
        """The vocabulary of a file. The file's identity is noted for the run.

        Raises:
            WorkbenchError: there is no such file, or it holds something else.
        """
        make = f"`workbench prepare entity-vocabulary CORPORA --output {quoted(path)}`"
        if not Path(path).is_file():
            raise WorkbenchError(f"there is no file {path} with a vocabulary of entities; {make} writes it")
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                arrays = {name: file.get_tensor(name).numpy() for name in IDS if name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise WorkbenchError(f"{path} is no vocabulary of entities ({error}); {make} writes one") from error
        if metadata.get("kind") != KIND or len(arrays) < len(IDS):
            raise WorkbenchError(f"{path} holds no vocabulary of entities; {make} writes one")
        note(KIND, path, sha256_of(Path(path)))
        blob, spans, hashes, order = (arrays[name] for name in IDS)
        return cls(StringTable(blob.data, spans, hashes.view(np.uint64), order), str(path))


def save_entity_vocabulary(path: Path, counts: Counter[str], size: int, provenance: Mapping[str, Any]) -> int:
    """Write the `size` most frequent entities, of equal ones the first by id; returns how many there are."""
    chosen = sorted(counts, key=lambda entity: (-counts[entity], entity))[:size]
    return write_entity_vocabulary(path, chosen, counts, provenance)


def write_entity_vocabulary(
    path: Path, chosen: Sequence[str], counts: Mapping[str, int], provenance: Mapping[str, Any]
) -> int:
    """Write the entities in the order of their rows; returns how many there are."""
    arrays = string_arrays(chosen)
    arrays["hashes"] = arrays["hashes"].view(np.int64)  # safetensors knows no unsigned ones
    arrays["counts"] = np.array([counts[entity] for entity in chosen], np.int64)
    tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    save_tensors(path, tensors, {"format": "pt", "kind": KIND, "provenance": json.dumps(provenance)})
    return len(chosen)
