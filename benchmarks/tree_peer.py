"""K-BERT's sentence tree as the paper says it (arXiv:1909.07606, section 3.3), a sentence at a time in plain Python,
with its visible matrix: what `kg.sentence_tree` is measured beside (`benchmarks.knowledge_steps`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Mention = tuple[int, int, tuple[tuple[int, ...], ...]]
"""First token, the token behind its last, and the tokens of each branch that hangs on it."""


class Known(NamedTuple):
    """A sentence's tokens and its mentions, in order and apart from each other."""

    tokens: list[int]
    mentions: list[Mention]


class Tree(NamedTuple):
    """Tokens and soft positions of the tree read in depth, and who sees whom [tokens, tokens]."""

    tokens: list[int]
    positions: list[int]
    visible: np.ndarray


def sentence_tree(known: Known, max_length: int) -> Tree:
    """The tree of a sentence, cut to `max_length` tokens."""
    tokens: list[int] = []
    positions: list[int] = []
    trunk: list[int] = []
    hanging: list[tuple[list[int], list[list[int]]]] = []  # places of a mention, and of each of its branches
    at = 0
    for start, end, branches in [*known.mentions, (len(known.tokens), len(known.tokens), ())]:
        for position in range(at, end):
            trunk.append(len(tokens))
            tokens.append(known.tokens[position])
            positions.append(position)
        own = trunk[len(trunk) - (end - start) :] if end > start else []
        placed = []
        for branch in branches:
            places = []
            for number, token in enumerate(branch, start=1):
                places.append(len(tokens))
                tokens.append(token)
                positions.append(end - 1 + number)
            placed.append(places)
        hanging.append((own, placed))
        at = end
    return Tree(
        tokens[:max_length], positions[:max_length], _visible(len(tokens), trunk, hanging)[:max_length, :max_length]
    )


def _visible(size: int, trunk: list[int], hanging: list[tuple[list[int], list[list[int]]]]) -> np.ndarray:
    """A trunk's token sees the trunk and the branches of its own mention, one of a branch that and its mention."""
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
