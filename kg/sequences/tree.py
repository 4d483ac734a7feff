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
    length = len(text["input_ids"])
    trunk_anchor = np.zeros(length, np.int64)
    tokens: list[int] = []
    at: list[int] = []  # of each branch: its size, the tokens of those before it, the trunk row before it, its mention
    m = 0
    for mention in mentions:
        if any(mention.branches):
            m += 1
            trunk_anchor[mention.start : mention.end] = m
            for ids in mention.branches:
                at += (len(ids), len(tokens), mention.end - 1, m)
                tokens += ids
    sizes, before, ends, numbers = np.array(at, np.int64).reshape(-1, 4).T
    branch = np.arange(len(sizes)).repeat(sizes)
    last = ends[branch]
    step = np.arange(1, len(tokens) + 1) - before[branch]  # from the mention's last token
    values = {"input_ids": np.array(tokens, np.int64), "position_ids": text["position_ids"][last] + step}
    if visible_matrix:
        text |= {"branch": np.zeros(length, np.int64), "anchor": trunk_anchor}
        values |= {"branch": branch + 1, "anchor": numbers[branch]}
    where = insert(sequence, last + 1, stream, like=last, **values)
    injected = np.zeros(length + len(tokens), np.bool_)
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
