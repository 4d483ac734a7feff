"""The rows of a table of vectors, in this process and in another one."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

from kg.sequences.table_transform import TableRows
from kg.vectors.vectors import GraphVectors, save_vectors
from workbench.core.errors import WorkbenchError


def save(path: Path, *ids: str) -> None:
    save_vectors(GraphVectors(list(ids), torch.zeros(len(ids), 2), ["r"], torch.zeros(1, 2)), path)


def test_another_process_opens_the_same_vectors_or_none(tmp_path: Path) -> None:
    path = tmp_path / "vectors.safetensors"
    save(path, "a", "b")
    sent = pickle.dumps(TableRows(str(path)))
    assert dict(pickle.loads(sent)) == {"a": 0, "b": 1}
    assert dict(pickle.loads(pickle.dumps(TableRows({"a": 3})))) == {"a": 3}
    save(path, "b", "a")
    with pytest.raises(WorkbenchError, match="were replaced while they were in use"):
        pickle.loads(sent)
