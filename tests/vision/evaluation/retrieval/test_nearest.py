"""The nearest of many vectors: exact over several blocks, and nearly exact by faiss."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from vision.evaluation.retrieval import nearest as index
from vision.evaluation.retrieval.nearest import ExactIndex, FaissIndex
from workbench.core.errors import WorkbenchError


def vectors(count: int, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(count, 16)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


@pytest.mark.parametrize("block", [7, 1000])
def test_the_exact_search_is_that_of_the_whole_matrix(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "BLOCK", block)
    known, asked = vectors(100, 0), vectors(5, 1)
    scores, places = ExactIndex(known).search(asked, 12)
    whole = asked @ known.T
    assert places.tolist() == np.argsort(-whole, axis=1)[:, :12].tolist()
    np.testing.assert_allclose(scores, -np.sort(-whole, axis=1)[:, :12], rtol=1e-5)
    assert ExactIndex(known[:3]).search(asked, 12)[1].shape == (5, 3)


def test_faiss_finds_nearly_all_of_them() -> None:
    pytest.importorskip("faiss")
    known, asked = vectors(3000, 0), vectors(20, 1)
    exact = ExactIndex(known).search(asked, 10)[1]
    found = FaissIndex(known).search(asked, 10)[1]
    shared = [len({*a} & {*b}) for a, b in zip(exact.tolist(), found.tolist(), strict=True)]
    assert np.mean(shared) > 9.5
    assert FaissIndex(known[:3]).search(asked, 10)[1].shape == (20, 3)


def test_without_faiss_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(WorkbenchError, match=r"pip install 'pretraining-workbench\[search\]'"):
        FaissIndex(vectors(3, 0))
