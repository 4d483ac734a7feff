"""The mechanics of K-BERT's sentence tree: branches inserted into a trunk.

Liu et al., "K-BERT: Enabling Language Representation with Knowledge Graph", AAAI 2020 (arXiv 1909.07606). The visible
matrix is never built: two integers per token say the same,

    branch   0 on the trunk, n on the n-th injected triple
    anchor   0 on the plain trunk, m on the m-th mention that carries branches and on those branches
    visible(q, k) = branch[q] == branch[k]  or  anchor[q] == anchor[k] and (branch[q] == 0 or branch[k] == 0)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from itertools import chain

import numpy as np

from workbench.sequences.rows import insert
from workbench.sequences.sequence import Sequence


@dataclass(frozen=True)
class Mention:
    """Trunk rows [start, end) and the token ids of each branch that hangs on them."""

    start: int
    end: int
    branches: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """Number of tokens that the branches add."""
        return sum(len(branch) for branch in self.branches)


def plant(
    sequence: Sequence, mentions: Ordered[Mention], visible_matrix: bool = True, stream: str = "text"
) -> np.ndarray:
    """Insert the branches of the mentions (sorted, disjoint) into a stream, in place; which rows are branches' [rows].

    Without `visible_matrix` everybody sees everybody.
    """
    text = sequence.streams[stream]
    trunk_anchor = np.zeros(len(text["input_ids"]), np.int64)
    branches: list[tuple[int, ...]] = []
    at: list[tuple[int, int, int, int]] = []  # of each branch: tokens, those before, the trunk row before it, mention
    total = 0
    for m, mention in enumerate((m for m in mentions if any(m.branches)), start=1):
        trunk_anchor[mention.start : mention.end] = m
        for ids in mention.branches:
            at.append((len(ids), total, mention.end - 1, m))
            total += len(ids)
        branches += mention.branches
    sizes, before, ends, numbers = np.array(at, np.int64).reshape(-1, 4).T
    last = ends.repeat(sizes)
    step = np.arange(1, total + 1) - before.repeat(sizes)  # from the mention's last token
    tokens = np.fromiter(chain.from_iterable(branches), np.int64, total)
    values = {"input_ids": tokens, "position_ids": text["position_ids"][last] + step}
    if visible_matrix:
        text |= {"branch": np.zeros(len(trunk_anchor), np.int64), "anchor": trunk_anchor}
        values |= {"branch": np.arange(1, len(sizes) + 1).repeat(sizes), "anchor": numbers.repeat(sizes)}
    where = insert(sequence, last + 1, stream, like=last, **values)
    injected = np.zeros(sequence.length(stream), np.bool_)
    injected[where] = True
    return injected


def fit(mentions: Ordered[Mention], budget: int) -> list[Mention]:
    """Leave out whole branches, from the last mention on, until at most `budget` branch tokens remain."""
    size = sum(mention.size for mention in mentions)
    kept = list(mentions)
    while size > budget:
        last = kept[-1]
        if not last.branches:
            kept.pop()
            continue
        size -= len(last.branches[-1])
        kept[-1] = dataclasses.replace(last, branches=last.branches[:-1])
    return [mention for mention in kept if mention.branches]
