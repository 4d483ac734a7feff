"""Entity replacement: is a mention that of the entity that the text is about, or was another put in its place?

Xiong et al., "Pretrained Encyclopedia: Weakly Supervised Knowledge-Pretrained Language Model", ICLR 2020 (WKLM,
arXiv:1912.09637). Some mentions are replaced by the label of another entity of the same type, never two neighbouring
ones. At each mention, with b and a the states of the tokens before and after it,

    z = w . [b ; a] + c
    L = sum over mentions of the binary cross-entropy of sigmoid(z) against "was replaced"

A mention is decided where the graph has an entity to put there, and no other field of the sample marks a part of it;
others are left as they are and have no label. Masked language modelling that comes later in a recipe leaves all of them
alone, as in the paper.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kg.graph.peers import Peers
from kg.graph.store import GraphStore
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Location, SomeShare, Word
from workbench.corpora.schema.places import splice, stretches_in
from workbench.models.network import Network
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput, Objective
from workbench.sequences.sequence import Rows, Sample, Sequence, Span

TEXTS = {"text": "spans", "second": "second_spans"}


class EntityReplacement(Objective):
    """Entity replacement detection (WKLM, arXiv:1912.09637). Some entity mentions are replaced by others, and the model
    predicts for each mention whether it was.

    Args:
        graph: the folder of a `kg.graph.store.GraphStore` whose entities have labels and types.
        rate: how likely a mention is replaced whose neighbour before it was not: rate / (1 + rate) of all are in long
            texts whose mentions can all be, and up to `rate` where few can.
        stream: the stream of the tokens.
    """

    reads_spans = True
    unaffected_by = ("shuffled-kg", "permuted-kg")  # it reads the types and names of a graph, and none of its triples

    def __init__(self, graph: Location, rate: SomeShare = 0.5, stream: Word = "text") -> None:
        self.peers = Peers(GraphStore.open(graph))
        self.rate, self.stream = rate, stream

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        """The samples with mentions replaced; the linked entities say which (`Span.labels`)."""
        return [self._arranged(sample, draws.of(tuple(sample.get("draw", ())))) for sample in samples]

    def _arranged(self, sample: Sample, rng: np.random.Generator) -> Sample:
        for text, field in TEXTS.items():
            if sample.get(field):
                sample = self._replaced(sample, text, field, rng)
        return sample

    def _replaced(self, sample: Sample, text: str, field: str, rng: np.random.Generator) -> Sample:
        spans = sample[field]
        marked = list(stretches_in({k: v for k, v in sample.items() if k != field}, text))
        edits, decided, before = [], {}, False
        for i in mentions_apart(spans):
            start, end, entity, *score = spans[i][:4]
            other = None
            if not any(s[0] < end and start < s[1] and (s[0], s[1]) != (start, end) for s in marked):
                other = self.peers.other(entity, sample[text][start:end], rng)
            before = other is not None and not before and bool(rng.random() < self.rate)
            if other is not None:
                decided[i] = [start, end, other[0] if before else entity, *(score or [1.0]), {self.name: int(before)}]
                if before:
                    edits.append((start, end, other[1]))
        gone = {edit[:2] for edit in edits}  # other candidates for a mention that was replaced
        kept = [decided.get(i, span) for i, span in enumerate(spans) if i in decided or tuple(span[:2]) not in gone]
        return splice({**sample, field: kept}, text, edits)

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        """Writes `rows` (of each mention the first), `before`, `after` and `labels` [mentions]; takes all mentions."""
        for sequence in sequences:
            text = sequence.fields(self.stream)
            found = sequence.spans_of(self.stream)
            decided = [span for span in found if self._decidable(span, text["taken"])]
            places = np.array([[s.start, s.start - 1, s.end] for s in decided], np.int64).reshape(-1, 3)
            sequence.targets[self.name] = {
                name: Rows(self.stream, rows) for name, rows in zip(("rows", "before", "after"), places.T, strict=True)
            }
            sequence.targets[self.name]["labels"] = np.array([s.labels[self.name] for s in decided], np.int64)
            for span in found:
                text["taken"][span.start : span.end] = True
        return {}

    def _decidable(self, span: Span, taken: np.ndarray) -> bool:
        """Whether a mention has a label, tokens on both sides, and none that an earlier objective has changed."""
        inside = span.start > 0 and span.end < len(taken)
        return self.name in span.labels and inside and not taken[span.start : span.end].any()

    def head(self, network: Network) -> Head:
        return EntityReplacementHead(network.sizes[self.stream], self.stream)


class EntityReplacementHead(Head):
    """A linear layer on the states of the tokens on both sides of a mention."""

    def __init__(self, hidden_size: int, stream: str = "text") -> None:
        super().__init__()
        self.stream = stream
        self.score = nn.Linear(2 * hidden_size, 1)

    def forward(self, inputs: HeadInputs) -> LossOutput:
        """Metrics: `accuracy`; `precision` and `recall` of the replaced (to decide "none was" has a recall of 0)."""
        targets, states = inputs.targets, inputs.states[self.stream]
        around = torch.cat([states[targets["before"]], states[targets["after"]]], -1)
        logits: Tensor = self.score(around).squeeze(-1).float()
        gold = targets["labels"] > 0
        loss = F.binary_cross_entropy_with_logits(logits, gold.float(), reduction="sum")
        predicted = logits > 0
        both = (predicted & gold).sum()
        right = (predicted == gold).sum()
        return LossOutput(
            loss,
            {"accuracy": (right, len(gold)), "precision": (both, predicted.sum()), "recall": (both, gold.sum())},
        )


def mentions_apart(spans: list[Any]) -> list[int]:
    """The places of mentions that don't overlap, in the order of the text.

    Of two the first, of equal starts the longer, of the candidates for one mention the first.
    """
    kept: list[int] = []
    end = 0
    for i in sorted(range(len(spans)), key=lambda i: (spans[i][0], -spans[i][1])):
        if spans[i][0] >= end:
            kept.append(i)
            end = spans[i][1]
    return kept
