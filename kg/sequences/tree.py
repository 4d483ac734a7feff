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

from workbench.sequences.rows import insert_behind
from workbench.sequences.sequence import Sequence


@dataclass(frozen=True)
class BranchedMention:
    """Trunk rows [start, end) and the token ids of each branch that hangs on them."""

    start: int
    end: int
    branches: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """Number of tokens that the branches add."""
        return sum(len(branch) for branch in self.branches)


def plant(
    sequence: Sequence, mentions: Ordered[BranchedMention], visible_matrix: bool = True, stream: str = "text"
) -> np.ndarray:
    """Insert the branches of the mentions (sorted, disjoint) into a stream, in place; which rows are branches' [rows].

    Without `visible_matrix` everybody sees everybody.
    """
    return plant_all([sequence], [mentions], visible_matrix, stream)[0]


def plant_all(
    sequences: Ordered[Sequence],
    mentions: Ordered[Ordered[BranchedMention]],
    visible_matrix: bool = True,
    stream: str = "text",
) -> list[np.ndarray]:
    """`plant` the mentions of each sequence, which takes less time than one after the other."""
    texts = [sequence.streams[stream] for sequence in sequences]
    tokens: list[int] = []
    at: list[int] = []  # of each branch: size, tokens of those before it, the row before it, its number, its mention's
    begin = 0
    for text, own in zip(texts, mentions, strict=True):
        length = len(text["input_ids"])
        trunk_anchor = np.zeros(length, np.int64)
        m = branch = 0
        for mention in own:
            if any(mention.branches):
                m += 1
                trunk_anchor[mention.start : mention.end] = m
                for ids in mention.branches:
                    branch += 1
                    at += (len(ids), len(tokens), begin + mention.end - 1, branch, m)
                    tokens += ids
        if visible_matrix:
            text |= {"branch": np.zeros(length, np.int64), "anchor": trunk_anchor}
        begin += length
    sizes = np.array(at[::5], np.int64)
    before, last, branches, anchors = np.array(at, np.int64).reshape(-1, 5).repeat(sizes, axis=0).T[1:]
    step = np.arange(1, len(tokens) + 1) - before  # from the mention's last token
    positions = np.concatenate([text["position_ids"] for text in texts])[last] + step if texts else step
    values = {"input_ids": np.array(tokens, np.int64), "position_ids": positions}
    if visible_matrix:
        values |= {"branch": branches, "anchor": anchors}
    return insert_behind(sequences, last, stream, **values)


def fit(mentions: Ordered[BranchedMention], budget: int) -> list[BranchedMention]:
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
