"""The mechanics of K-BERT's sentence tree: branches inserted into a trunk, and everything that points into it moved.

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

from workbench.sequences.sequence import Fields, Sequence, Span


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


@dataclass(frozen=True)
class Tree:
    """A sentence tree, one entry per row.

    `source` is the trunk row that a row comes from; for a branch token, the last row of its mention.
    """

    input_ids: np.ndarray
    position_ids: np.ndarray
    branch: np.ndarray
    anchor: np.ndarray
    source: np.ndarray

    def cut(self, rows: int) -> Tree:
        """The first `rows` rows."""
        return Tree(**{f.name: getattr(self, f.name)[:rows] for f in dataclasses.fields(self)})


def grow(input_ids: np.ndarray, position_ids: np.ndarray, mentions: Ordered[Mention]) -> Tree:
    """Insert the branches of the mentions (sorted, disjoint) into a trunk of `[tokens]` ids and positions."""
    n = len(input_ids)
    at: list[int] = []  # the trunk row before which a branch token goes
    tokens: list[int] = []
    step: list[int] = []  # distance of a branch token from the mention's last token
    branch: list[int] = []
    anchor: list[int] = []
    trunk_anchor = np.zeros(n, np.int64)
    number = 0
    for m, mention in enumerate((m for m in mentions if m.size), start=1):
        trunk_anchor[mention.start : mention.end] = m
        for ids in mention.branches:
            number += 1
            at += [mention.end] * len(ids)
            tokens += ids
            step += range(1, len(ids) + 1)
            branch += [number] * len(ids)
            anchor += [m] * len(ids)
    before = np.asarray(at, np.int64)
    injected = np.zeros(n + len(at), np.bool_)
    injected[before + np.arange(len(at))] = True
    sentence = ~injected

    def merged(trunk: np.ndarray | int, inserted: Ordered[int] | np.ndarray) -> np.ndarray:
        column = np.empty(len(injected), np.int64)
        column[sentence], column[injected] = trunk, inserted
        return column

    return Tree(
        input_ids=merged(input_ids, tokens),
        position_ids=merged(position_ids, position_ids[before - 1] + np.asarray(step, np.int64)),
        branch=merged(0, branch),
        anchor=merged(trunk_anchor, anchor),
        source=merged(np.arange(n), before - 1),
    )


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


def replant(sequence: Sequence, tree: Tree, visible_matrix: bool) -> Sequence:
    """The sequence with the tree's rows in its text stream; rows that point into the text follow it."""
    injected = tree.branch > 0
    text: Fields = {name: value[tree.source] for name, value in sequence.streams["text"].items()}
    text["input_ids"], text["position_ids"] = tree.input_ids, tree.position_ids
    if visible_matrix:
        text["branch"], text["anchor"] = tree.branch, tree.anchor
    for name, value in (("word_ids", -1), ("char_start", -1), ("char_end", -1), ("special", False), ("taken", True)):
        if name in text:
            text[name][injected] = value
    row_of = np.full(sequence.length("text"), -1)
    row_of[tree.source[~injected]] = np.flatnonzero(~injected)
    streams = dict(sequence.streams, text=text)
    if "entity" in streams:
        rows = row_of[streams["entity"]["token"]]
        streams["entity"] = {name: value[rows >= 0] for name, value in streams["entity"].items()}
        streams["entity"]["token"] = rows[rows >= 0]
    meta = dict(sequence.meta)
    if "mention" in meta:
        start, end = meta.pop("mention")
        if row_of[end - 1] >= 0:
            meta["mention"] = (int(row_of[start]), int(row_of[end - 1]) + 1)
    return dataclasses.replace(
        sequence,
        streams=streams,
        spans=_moved(sequence.spans, row_of),
        mask_spans=_moved(sequence.mask_spans, row_of),
        meta=meta,
    )


def _moved(spans: list[Span], row_of: np.ndarray) -> list[Span]:
    """The spans whose rows are still there, in the tree's rows."""
    return [
        Span(int(row_of[s.start]), int(row_of[s.end - 1]) + 1, s.entity, s.score)
        for s in spans
        if row_of[s.end - 1] >= 0
    ]
