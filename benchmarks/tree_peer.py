"""K-BERT's sentence tree as the paper says it (arXiv:1909.07606, section 3.3), a sentence at a time in plain Python,
with its visible matrix: what `kg.sentence_tree` is measured next to (`benchmarks.knowledge_steps`).

The matrix is filled pair by pair as it is defined (`by_pairs`), or row by row, all that a token sees at once, as the
released code does (`by_rows`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Mention = tuple[int, int, tuple[tuple[int, ...], ...]]
"""First token, the token behind its last, and the tokens of each branch that hangs on it."""


class Known(NamedTuple):
    """A sentence's tokens and its mentions, in order and apart from each other."""

    tokens: list[int]
    mentions: list[Mention]


Hanging = list[tuple[list[int], list[list[int]]]]
"""The places of each mention in the tree, and those of each of its branches."""
Filling = Callable[[int, list[int], Hanging], np.ndarray]
"""The visible matrix [tokens, tokens] of a tree of so many tokens, with the places of its trunk."""


class Tree(NamedTuple):
    """Tokens and soft positions of the tree read in depth, and who sees whom [tokens, tokens]."""

    tokens: list[int]
    positions: list[int]
    visible: np.ndarray


def sentence_tree(known: Known, max_length: int, filling: Filling) -> Tree:
    """The tree of a sentence, cut to `max_length` tokens."""
    tokens: list[int] = []
    positions: list[int] = []
    trunk: list[int] = []
    hanging: Hanging = []
    at = 0
    for start, end, branches in [*known.mentions, (len(known.tokens), len(known.tokens), ())]:
        for position in range(at, end):
            trunk.append(len(tokens))
            tokens.append(known.tokens[position])
            positions.append(position)
        placed = []
        for branch in branches:
            placed.append([len(tokens) + number for number in range(len(branch))])
            tokens.extend(branch)
            positions.extend(end + number for number in range(len(branch)))
        hanging.append((trunk[len(trunk) - (end - start) :] if end > start else [], placed))
        at = end
    visible = filling(len(tokens), trunk, hanging)
    return Tree(tokens[:max_length], positions[:max_length], visible[:max_length, :max_length])


def by_pairs(size: int, trunk: list[int], hanging: Hanging) -> np.ndarray:
    """Two tokens see each other that are both of the trunk, of one branch, or of a branch and its mention."""
    branch, mention, number = [0] * size, [0] * size, 0
    for m, (own, branches) in enumerate(hanging, start=1):
        for place in own:
            mention[place] = m
        for places in branches:
            number += 1
            for place in places:
                branch[place], mention[place] = number, m
    visible = np.zeros((size, size), np.bool_)
    for i in range(size):
        for j in range(size):
            hangs = mention[i] == mention[j] and mention[i] > 0 and (branch[i] == 0 or branch[j] == 0)
            if branch[i] == branch[j] or hangs:
                visible[i, j] = True
    return visible


def by_rows(size: int, trunk: list[int], hanging: Hanging) -> np.ndarray:
    """The same: a trunk's token sees the trunk and its mention's branches, a branch's its own and the mention."""
    visible = np.zeros((size, size), np.bool_)
    seen = {place: list(trunk) for place in trunk}
    for mention, branches in hanging:
        for branch in branches:
            for place in mention:
                seen[place] += branch
            for place in branch:
                seen[place] = [*branch, *mention]
    for place, others in seen.items():
        visible[place, others] = True
    return visible
