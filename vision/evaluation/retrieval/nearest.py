"""Nearest-neighbour search: exact in blocks, or approximate with faiss's graph of neighbours (HNSW, arXiv:1603.09320)
for large corpora."""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np
import torch

from workbench.core.errors import WorkbenchError

Kind = Literal["exact", "faiss"]
BLOCK = 1 << 16
_NEIGHBOURS, _BUILT_WITH, _SEARCHED_WITH = 32, 200, 256  # of a vector in the graph; candidates kept on the way


class Index(Protocol):
    """An index of vectors [n, size] that finds the highest dot products."""

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Scores [queries, k], the highest first, and the numbers of the vectors; fewer if there are fewer vectors."""


class ExactIndex:
    """Exact search over all vectors, `BLOCK` of them at once."""

    def __init__(self, vectors: np.ndarray) -> None:
        self.vectors = vectors

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        asked = torch.as_tensor(queries)
        scores, places = asked.new_empty(len(asked), 0), torch.empty(len(asked), 0, dtype=torch.int64)
        for start in range(0, len(self.vectors), BLOCK):
            block = asked @ torch.as_tensor(self.vectors[start : start + BLOCK]).T
            found, where = block.topk(min(k, block.shape[1]), 1)
            scores, places = torch.cat([scores, found], 1), torch.cat([places, where + start], 1)
            scores, best = scores.topk(min(k, scores.shape[1]), 1)
            places = places.gather(1, best)
        return scores.numpy(), places.numpy()


class FaissIndex:
    """Approximate search with a graph of neighbours."""

    def __init__(self, vectors: np.ndarray) -> None:
        """
        Raises:
            WorkbenchError: faiss is not installed.
        """
        try:
            import faiss
        except ImportError as error:
            raise WorkbenchError(
                "an index of neighbours needs the package 'faiss-cpu': pip install 'pretraining-workbench[search]'; or "
                "search exactly (--index exact)"
            ) from error
        self.count = len(vectors)
        self.graph = faiss.IndexHNSWFlat(vectors.shape[1], _NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
        self.graph.hnsw.efConstruction, self.graph.hnsw.efSearch = _BUILT_WITH, _SEARCHED_WITH
        self.graph.add(np.ascontiguousarray(vectors, np.float32))

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        scores, places = self.graph.search(np.ascontiguousarray(queries, np.float32), min(k, self.count))
        return scores, places


KINDS: dict[str, type[ExactIndex] | type[FaissIndex]] = {"exact": ExactIndex, "faiss": FaissIndex}
