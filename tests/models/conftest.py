"""Random batches and a plain-loop attention, for the tests of the models."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from workbench.sequences.batch import Batch, Stream
from workbench.sequences.pattern import VISIBILITY


def stream(lengths: list[int], **fields: Tensor) -> Stream:
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    return Stream(fields or {"input_ids": torch.zeros(sum(lengths), dtype=torch.long)}, offsets, lengths)


def sees(q: dict[str, int], k: dict[str, int]) -> bool:
    """The predicate, for one pair of tokens."""
    until = k["until"] == 0 or q["rank"] < k["until"]
    branch = q["branch"] == k["branch"] or (q["anchor"] == k["anchor"] and 0 in (q["branch"], k["branch"]))
    return q["doc"] == k["doc"] and k["rank"] <= q["rank"] and until and branch


def integers_of(streams: list[Stream], sequence: int) -> list[dict[str, int]]:
    """The visibility integers of each row of a sequence of joined streams."""
    rows = []
    for s in streams:
        start = int(s.offsets[sequence])
        for row in range(start, start + s.lengths[sequence]):
            rows.append({n: int(s.fields[n][row]) if n in s.fields else 0 for n in VISIBILITY})
    return rows


def rows_of(streams: list[Stream], sequence: int) -> list[int]:
    """The row numbers, in `torch.cat` order, of a sequence of joined streams."""
    rows, base = [], 0
    for s in streams:
        start = base + int(s.offsets[sequence])
        rows += range(start, start + s.lengths[sequence])
        base += s.rows
    return rows


def loop_attention(q: Tensor, k: Tensor, v: Tensor, q_streams: list[Stream], k_streams: list[Stream]) -> Tensor:
    """Attention by plain loops over sequences, heads, queries and keys."""
    out = torch.zeros_like(q)
    for sequence in range(len(q_streams[0].lengths)):
        q_rows, k_rows = rows_of(q_streams, sequence), rows_of(k_streams, sequence)
        q_ints, k_ints = integers_of(q_streams, sequence), integers_of(k_streams, sequence)
        for i, row in enumerate(q_rows):
            seen = [r for j, r in enumerate(k_rows) if sees(q_ints[i], k_ints[j])]
            if not seen:
                continue
            for head in range(q.shape[1]):
                scores = (k[seen, head] @ q[row, head]) / math.sqrt(q.shape[-1])
                out[row, head] = torch.softmax(scores, 0) @ v[seen, head]
    return out


@pytest.fixture
def plain_batch() -> Batch:
    return Batch({"text": stream([5, 1, 9, 3]), "image": stream([4, 0, 4, 2])})


@pytest.fixture
def mixed_batch() -> Batch:
    """Text of the four visibilities of UniLM, and one of GLM: two blanks' tokens behind a text that they all see."""
    ranks = [[0] * 5, [*range(4)], [3, 2, 1, 0], [0, 0, 0, 1, 2, 3], [0, 0, 0, 0, 1, 2, 3, 4, 5]]
    rank = torch.tensor([number for sequence in ranks for number in sequence])
    return Batch({"text": stream([len(sequence) for sequence in ranks], rank=rank), "image": stream([2, 0, 4, 2, 1])})


@pytest.fixture
def odd_batch() -> Batch:
    """Text with every visibility integer, image rows with none."""
    g = torch.Generator().manual_seed(0)
    n = 18
    fields = {
        name: torch.randint(0, high, (n,), generator=g)
        for name, high in (("doc", 2), ("rank", 3), ("branch", 3), ("anchor", 3), ("until", 3))
    }
    return Batch({"text": stream([5, 1, 9, 3], **fields), "image": stream([4, 0, 4, 2])})
