"""The vocabulary of entities as a file."""

from __future__ import annotations

import pickle
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
import torch

from kg.sequences.entity_vocabulary import EntityVocabulary, save_entity_vocabulary
from kg.sequences.transforms.entity_tokens import EntityTokensTransform
from kg.vectors.vectors import GraphVectors, save_vectors
from workbench.core.errors import WorkbenchError


def test_the_frequent_ones_come_first_behind_the_special_ones(tmp_path: Path) -> None:
    path = tmp_path / "v.safetensors"
    assert save_entity_vocabulary(path, Counter({"Q3": 2, "Q1": 9, "Q2": 2, "Q4": 1, "Oslo, Ω": 3}), 4, {}) == 4
    found = EntityVocabulary.open(path)
    assert len(found) == 7
    assert {name: found.row(name) for name in ("Q1", "Oslo, Ω", "Q2", "Q3", "Q4", "[MASK]", "")} == {
        "Q1": 3,
        "Oslo, Ω": 4,
        "Q2": 5,
        "Q3": 6,
        **dict.fromkeys(("Q4", "[MASK]", "")),
    }


def test_what_is_no_vocabulary_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "v.safetensors"
    make = r"`workbench prepare entity-vocabulary CORPORA --output .*v\.safetensors`"
    with pytest.raises(WorkbenchError, match=f"no file .*{make}"):
        EntityVocabulary.open(path)
    path.write_text("{}")
    with pytest.raises(WorkbenchError, match=f"is no vocabulary of entities .*{make}"):
        EntityVocabulary.open(path)
    save_vectors(GraphVectors(["a"], torch.zeros(1, 2), ["r"], torch.zeros(1, 2)), path)
    with pytest.raises(WorkbenchError, match=f"holds no vocabulary of entities; {make}"):
        EntityVocabulary.open(path)


def test_a_large_vocabulary_costs_a_worker_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "v.safetensors"
    save_entity_vocabulary(path, Counter({f"Q{i}": 1 for i in range(20_000)}), 20_000, {})
    EntityVocabulary.open(path)  # the checksum is computed once
    tracemalloc.start()
    try:
        step = EntityTokensTransform(str(path))
        assert tracemalloc.get_traced_memory()[1] < 300_000
    finally:
        tracemalloc.stop()
    assert len(pickle.dumps(step)) < 1000
