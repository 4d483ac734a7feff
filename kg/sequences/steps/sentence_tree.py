"""K-BERT's sentence tree: triples of the graph hung as branches on the mentions of a sentence.

Liu et al., "K-BERT: Enabling Language Representation with Knowledge Graph", AAAI 2020 (arXiv 1909.07606).

The trunk is the sentence. After the last token of a mention come its branches, one per triple: the predicate and
the object. *Soft positions*: the trunk keeps the positions it had; every branch goes on from the position of its
mention's last token. *Visible matrix*: a branch sees itself and its mention, a trunk token sees the trunk and the
branches of its own mention. It is never built: two integers per token say the same,

    branch   0 on the trunk, n on the n-th injected triple
    anchor   0 on the plain trunk, m on the m-th mention that carries branches and on those branches
    visible(q, k) = branch[q] == branch[k]  or  anchor[q] == anchor[k] and (branch[q] == 0 or branch[k] == 0)

What the release does otherwise: it keeps the objects of a subject in a Python set, so that which of them survive
`max_triples` differs from run to run; here it is the order of the graph.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from kg.sequences.mentions import hidden
from workbench.keyed import Draws
from workbench.options.bounds import Count, Location, Name, Seed
from workbench.sequences.protocols import Step
from workbench.sequences.sequence import Fields, Sequence, Span
from workbench.text.tokenizer import Tokenizer

CACHED_MENTIONS = 1 << 16


@runtime_checkable
class Graph(Protocol):
    """What the tree needs of a knowledge graph (`kg.graph.store.GraphStore` is one)."""

    def neighbours(self, entity: str) -> list[tuple[str, str]]:
        """The (relation, tail) pairs whose head is the entity, in the graph's order."""

    def label(self, entity: str) -> str:
        """The readable name of an entity or a relation."""


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


class SentenceTree(Step):
    """The step that turns sequences with linked mentions into sentence trees.

    `graph` is the folder of a `kg.graph.store.GraphStore`. Each mention gets its first `max_triples` distinct triples
    in the graph's order (the release: 2), spelt as predicate and object, or as the object alone without
    `use_predicate`.

    A mention in a stretch that `Sequence.mask_spans` names gets none: its triples would tell what is to be predicted.

    A tree longer than `max_length` loses whole branches from the last mention on, never a token of the sentence
    (`overflow="branches"`); `overflow="cut"` is the release's rule, which cuts the tree and with it the sentence's
    tail. `take_dropped` says by reason what did not fit.

    `visible_matrix: false` keeps tokens and soft positions and lets everybody see everybody (the release's
    `--no_vm`). `control` is the recipe's: `no-kg` injects nothing, `shuffled-kg` draws from `graph.shuffled(seed)`.
    """

    controls = ("no-kg", "shuffled-kg")
    reads_spans = True

    def __init__(
        self,
        graph: Location | Graph,
        tokenizer: Tokenizer,
        max_length: Count,
        max_triples: Count = 2,
        use_predicate: bool = True,
        visible_matrix: bool = True,
        overflow: Literal["branches", "cut"] = "branches",
        control: Name | None = None,
        seed: Seed = 0,
    ) -> None:
        self.graph = None if control == "no-kg" else _open(graph, control, seed)
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.max_triples = max_triples
        self.use_predicate = use_predicate
        self.visible_matrix = visible_matrix
        self.overflow = overflow
        self.dropped: Counter[str] = Counter()
        self._branches = lru_cache(CACHED_MENTIONS)(self._look_up)

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        """The sequences with their branches; nothing here is drawn."""
        return sequences if self.graph is None else [self._grown(sequence) for sequence in sequences]

    def take_dropped(self) -> dict[str, int]:
        """What was left out since the last call, by reason."""
        dropped, self.dropped = dict(self.dropped), Counter()
        return dropped

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_branches"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._branches = lru_cache(CACHED_MENTIONS)(self._look_up)

    def _look_up(self, entity: str) -> tuple[tuple[int, ...], ...]:
        """The token ids of the entity's first distinct triples."""
        assert self.graph is not None
        spelt: dict[str, None] = {}
        for relation, tail in self.graph.neighbours(entity):
            tail_text = self.graph.label(tail)
            spelt[f"{self.graph.label(relation)} {tail_text}" if self.use_predicate else tail_text] = None
            if len(spelt) == self.max_triples:
                break
        return tuple(tuple(encoded.ids.tolist()) for encoded in self.tokenizer.encode_batch(list(spelt)))

    def _grown(self, sequence: Sequence) -> Sequence:
        text = sequence.streams["text"]
        if np.any(text.get("branch", 0)):
            raise ValueError(
                f"sequence {sequence.key!r} has branches already: name one SentenceTree in a recipe's steps"
            )
        mentions = self._mentions(sequence)
        length = len(text["input_ids"])
        if self.overflow == "branches":
            kept = fit(mentions, max(0, self.max_length - length))
            self._count("branches over max_length", _branch_count(mentions) - _branch_count(kept))
            mentions = kept
        tree = grow(text["input_ids"], text["position_ids"], mentions)
        if self.overflow == "cut":
            whole, tree = tree, tree.cut(self.max_length)
            self._count("branch tokens cut", int((whole.branch > 0).sum() - (tree.branch > 0).sum()))
            self._count("sentence tokens cut", int((whole.branch == 0).sum() - (tree.branch == 0).sum()))
        if not mentions and len(tree.source) == length:
            return sequence
        return _replant(sequence, tree, self.visible_matrix)

    def _mentions(self, sequence: Sequence) -> list[Mention]:
        """The mentions that have triples, in order; of two that overlap the first, of equal starts the longer."""
        found = []
        end = 0
        for span in sorted(sequence.spans, key=lambda s: (s.start, -s.end)):
            if hidden(span, sequence):
                self._count("mentions to be masked", 1)
                continue
            branches = self._branches(span.entity)
            if not branches:
                self._count("mentions without triples", 1)
            elif span.start < end:
                self._count("overlapping mentions", 1)
            else:
                found.append(Mention(span.start, span.end, branches))
                end = span.end
        return found

    def _count(self, reason: str, number: int) -> None:
        if number:
            self.dropped[reason] += number


def _open(graph: str | Graph, control: str | None, seed: int) -> Graph:
    if isinstance(graph, str):
        from kg.graph.store import GraphStore

        store: Any = GraphStore.open(graph)
    else:
        store = graph
    return store.shuffled(seed) if control == "shuffled-kg" else store


def _branch_count(mentions: Ordered[Mention]) -> int:
    return sum(len(mention.branches) for mention in mentions)


def _replant(sequence: Sequence, tree: Tree, visible_matrix: bool) -> Sequence:
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
