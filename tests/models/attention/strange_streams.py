"""Random streams of every kind of visibility, and what the predicate says of their rows, for tests of the kernels."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from workbench.models.attention.request import Request
from workbench.models.attention.visibility import visible
from workbench.models.layout import Layout
from workbench.sequences.batch import Stream
from workbench.sequences.pattern import VISIBILITY, pattern_of

RANKS = ("none", "zero", "same", "causal", "late", "prefix", "random", "anticausal")
DOCS = ("none", "one", "two", "packed", "pieces", "random")


def lengths(rng: np.random.Generator, sequences: int, least: int = 0, longest: int = 9) -> list[int]:
    return [int(n) for n in rng.integers(least, longest, sequences)]


def strange(rng: np.random.Generator, sizes: list[int]) -> dict[str, np.ndarray]:
    """Visibility integers of a stream: of one kind for all sequences, as builders write them, or of any."""
    rows = sum(sizes)
    fields: dict[str, list[np.ndarray]] = {}
    rank, doc = rng.choice(RANKS), rng.choice(DOCS, p=[0.35, 0.1, 0.1, 0.25, 0.1, 0.1])
    for n in sizes:
        if doc != "none":
            fields.setdefault("doc", []).append(_doc(rng, doc, n))
        if rank != "none":
            fields.setdefault("rank", []).append(_rank(rng, rank, n))
    made = {name: np.concatenate([*parts, np.zeros(0, np.int64)]).astype(np.int64) for name, parts in fields.items()}
    for name, odds in (("until", 0.2), ("branch", 0.2)):
        if rng.random() < odds:
            made[name] = rng.integers(0, 3, rows) if rng.random() < 0.5 else np.zeros(rows, np.int64)
    if "branch" in made or rng.random() < 0.1:
        made["anchor"] = rng.integers(0, 3, rows)
    return made


def _rank(rng: np.random.Generator, kind: str, n: int) -> np.ndarray:
    places = np.arange(n)
    return {
        "zero": np.zeros(n),
        "same": np.full(n, 3),
        "causal": places,
        "late": places * 2 + 1,
        "prefix": np.maximum(places - 2, 0),
        "random": rng.integers(0, 3, n),
        "anticausal": places[::-1],
    }[kind]


def _doc(rng: np.random.Generator, kind: str, n: int) -> np.ndarray:
    return {
        "one": np.full(n, 1),
        "two": np.full(n, 2),
        "packed": np.sort(rng.integers(1, 4, n)),
        "pieces": np.arange(n) % 2,
        "random": rng.integers(0, 3, n),
    }[kind]


def stream_of(sizes: list[int], integers: dict[str, np.ndarray]) -> Stream:
    """The stream as `collate` would make it."""
    fields = {"input_ids": torch.arange(sum(sizes))} | {n: torch.from_numpy(v) for n, v in integers.items()}
    stream = Stream(fields, torch.tensor([0, *sizes]).cumsum(0), sizes)
    known = {name: values for name, values in integers.items() if name in VISIBILITY}
    return stream.knowing(pattern_of(sizes, known))


def predicate(queries: Layout, keys: Layout, window: int | None) -> Tensor:
    """Who sees whom, over all rows in contiguous order [rows_q, rows_k]."""
    mask = queries.sequence_ids[:, None] == keys.sequence_ids[None, :]
    seen = visible(queries.contiguous_integers, keys.contiguous_integers)
    mask = mask if seen is None else mask & seen
    return mask if window is None else mask & ((queries.index[:, None] - keys.index[None, :]).abs() <= window)


def request(
    queries: Layout, keys: Layout, window: int | None, heads: int = 2, size: int = 16, seed: int = 0
) -> Request:
    g = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(rows, heads, size, generator=g) for rows in (queries.rows, keys.rows, keys.rows))
    return Request(*(t.requires_grad_() for t in (q, k, v)), queries, keys, window=window)
