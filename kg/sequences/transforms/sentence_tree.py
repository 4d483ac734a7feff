"""K-BERT's sentence tree: triples of the graph hung as branches on the mentions of a sentence.

Liu et al., "K-BERT: Enabling Language Representation with Knowledge Graph", AAAI 2020 (arXiv 1909.07606).

The trunk is the sentence. After the last token of a mention come its branches, one per triple: the predicate and
the object. *Soft positions*: the trunk keeps the positions it had; every branch continues from the position of its
mention's last token. *Visible matrix*: a branch sees itself and its mention, a trunk token sees the trunk and the
branches of its own mention (`kg.sequences.tree`).

What the released code does otherwise: it keeps the objects of a subject in a Python set, so that which of them survive
`most` differs from run to run; here it is the order of the graph, or `sampling: random` draws them.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from kg.sequences.branches import BranchMaker, BranchOptions, Graph
from kg.sequences.linked_mentions import hidden
from kg.sequences.linked_transform import TripleTransform, mention_at
from kg.sequences.tree import BranchedMention, fit, plant_all
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Location, Name, Seed, Word
from workbench.sequences.rows import take
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer


class SentenceTreeTransform(TripleTransform):
    """Sentence tree of K-BERT (Liu et al., arXiv:1909.07606): triples of the graph become branches of the linked
    mentions.

    A mention in a stretch that `Sequence.mask_spans` names gets no branch: its triples would reveal the
    tokens to be predicted.
    `take_dropped` says by reason what was left out.

    Args:
        graph: the folder of a `kg.graph.store.GraphStore`.
        max_length: rows of the longest tree.
        triples: which ones a mention gets, and how they are spelt (`kg.sequences.branches.BranchOptions`).
        visible_matrix: or else tokens and soft positions stay, and everybody sees everybody (the released code's
            `--no_vm`).
        overflow: a tree longer than `max_length` loses whole `branches` from the last mention on, never a token of the
            sentence; `cut` is the released code's rule, which cuts the tree and with it the sentence's tail.
        stream: the stream of the sentence.
        control: the recipe's; `no-kg` injects nothing; `shuffled-kg` and `permuted-kg` draw from a graph of false facts
            (`kg.graph.shuffle`), `random-entities` uses the triples of another entity (`kg.graph.permutation`);
            under `mentions-only` one branch of the mask token hangs where triples would.
    """

    def __init__(
        self,
        graph: Location | Graph,
        tokenizer: Tokenizer,
        max_length: Count,
        triples: BranchOptions | None = None,
        visible_matrix: bool = True,
        overflow: Literal["branches", "cut"] = "branches",
        stream: Word = "text",
        control: Name | None = None,
        seed: Seed = 0,
    ) -> None:
        super().__init__(graph, tokenizer, triples, control, seed)
        self.max_length = max_length
        self.stream = stream
        self.visible_matrix = visible_matrix
        self.overflow = overflow

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        """The sequences with their branches."""
        if self.branches is None:
            return sequences
        grown = list(sequences)
        planted: dict[int, list[BranchedMention]] = {}
        for i, sequence in enumerate(sequences):
            mentions = self._kept(sequence, self.branches, draws.of(sequence.draw) if self.drawn else None)
            if mentions or (self.overflow == "cut" and sequence.length(self.stream) > self.max_length):
                planted[i] = mentions
                streams = {name: dict(fields) for name, fields in sequence.streams.items()}
                grown[i] = replace(sequence, streams=streams)
        trees = [grown[i] for i in planted]
        injected = plant_all(trees, list(planted.values()), self.visible_matrix, self.stream)
        if self.overflow == "cut":
            for tree, rows in zip(trees, injected, strict=True):
                self._cut(tree, rows)
        return grown

    def injected(self, sequence: Sequence) -> list[dict[str, Any]]:
        """The branches of each mention, under a visible matrix: without one they look like the sentence."""
        text = sequence.fields(self.stream)
        if self.branches is None or "branch" not in text:
            return []
        numbers, anchor, facts = text["branch"], text["anchor"], []
        for mention in range(1, int(anchor.max(initial=0)) + 1):
            rows = np.flatnonzero((anchor == mention) & (numbers == 0))
            own = dict.fromkeys(numbers[(anchor == mention) & (numbers > 0)].tolist())
            spelt = [self.branches.tokenizer.decode(text["input_ids"][numbers == branch].tolist()) for branch in own]
            facts.append({**mention_at(text, rows), "facts": spelt})
        return facts

    def _kept(self, sequence: Sequence, maker: BranchMaker, rng: np.random.Generator | None) -> list[BranchedMention]:
        """The mentions with the branches that a sequence gets."""
        text = sequence.fields(self.stream)
        if "branch" in text and text["branch"].any():
            raise ValueError(
                f"sequence {sequence.key!r} has branches already: name one SentenceTree in a recipe's transforms"
            )
        mentions = self._mentions(sequence, maker, rng)
        if self.overflow == "branches":
            kept = fit(mentions, max(0, self.max_length - len(text["input_ids"])))
            self.dropped["branches over max_length"] += _branch_count(mentions) - _branch_count(kept)
            mentions = kept
        self.used["mentions"] += len(mentions)
        self.used["branches"] += _branch_count(mentions)
        return mentions

    def _cut(self, tree: Sequence, injected: np.ndarray) -> None:
        """Cut a tree to `max_length`, in place."""
        if len(injected) > self.max_length:
            cut = injected[self.max_length :]
            self.dropped["branch tokens cut"] += int(cut.sum())
            self.dropped["sentence tokens cut"] += int((~cut).sum())
            take(tree, np.arange(self.max_length), self.stream)

    def _mentions(
        self, sequence: Sequence, maker: BranchMaker, rng: np.random.Generator | None
    ) -> list[BranchedMention]:
        """The mentions that have triples, in order; of two that overlap the first, of equal starts the longer."""
        found = []
        end = 0
        for span in sorted(sequence.spans_of(self.stream), key=lambda s: (s.start, -s.end)):
            if hidden(span, sequence):
                self.dropped["mentions to be masked"] += 1
                continue
            branches = maker.of(span.entity, rng)
            self.dropped["triples without a name"] += branches.unnamed
            if not branches.ids:
                known = span.entity in maker.graph
                self.dropped["mentions without triples" if known else "entities not in the graph"] += 1
            elif span.start < end:
                self.dropped["overlapping mentions"] += 1
            else:
                found.append(BranchedMention(span.start, span.end, branches.ids))
                end = span.end
        return found


def _branch_count(mentions: Ordered[BranchedMention]) -> int:
    return sum(len(mention.branches) for mention in mentions)
