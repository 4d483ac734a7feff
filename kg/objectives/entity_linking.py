"""Entity linking: which candidate does a mention mean, or none of them?

Peters et al., "Knowledge Enhanced Contextual Word Representations", EMNLP 2019 (KnowBERT, arXiv:1909.04164), section
3.2: supervision for the linker inside the layer `kg.kar`. With psi_mk its score of candidate k for mention m, and g the
right one, the sum over mentions of

    likelihood:  - log softmax_k(psi_m)_g                                                                          (4)
    margin:      max(0, margin - psi_mg) + sum over the others k of max(0, margin + psi_mk)                        (5)

As in the released code, the first is divided by the number of mentions, the second by that of candidates. A mention of
which none of the candidates is the right one (NIL) counts for the margin alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import NotNegative, Word
from workbench.metrics.ranks import rank_scores, realistic_rank
from workbench.models.network import Network
from workbench.models.permutation import padded_groups
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput, Objective
from workbench.sequences.batch import Batch
from workbench.sequences.rows import drop
from workbench.sequences.sequence import Rows, Sequence
from workbench.sequences.transfer import on_device, rows_where

Loss = Literal["likelihood", "margin"]
Metrics = dict[str, tuple[Tensor | float, Tensor | float]]


class EntityLinking(Objective):
    """Entity linking (KnowBERT, Peters et al., arXiv:1909.04164). It trains the linker of a layer `kg.kar`, and removes
    the candidates of masked mentions.

    A mention with a token that an objective before this one has masked keeps its place and loses its candidates, which
    would reveal the target (the released code's `full_mask`). It is not labelled. So this objective comes after mlm
    even if the right entities are unknown.

    Args:
        stream: the stream of the candidates (the transform `kg.candidates`).
        mentions: the stream of the mentions.
        tokens: the stream that they are in.
        loss: (4) or (5).
        margin: of (5).
    """

    measured = ("scores", "priors", "labels", "candidates")
    unlabelled = (
        "nobody says which candidates of the mentions are right: `workbench prepare link CORPUS --graph GRAPH "
        "--candidates 30 --supervise` marks them in a corpus whose links are known"
    )

    def __init__(
        self,
        stream: Word = "candidates",
        mentions: Word = "mentions",
        tokens: Word = "text",
        loss: Loss = "likelihood",
        margin: NotNegative = 0.2,
    ) -> None:
        self.stream, self.mentions, self.tokens = stream, mentions, tokens
        self.loss, self.margin = loss, margin

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        """Writes the targets of the mentions of which the corpus says what they mean: `rows`, all their candidates;
        `labels` [rows], 1 for the right one; `candidates` [mentions], how many each has."""
        for sequence in sequences:
            self._hide(sequence)
            fields = sequence.fields(self.stream)
            rows = np.flatnonzero(fields["right"] >= 0)
            counts = np.unique(fields["mention"].index[rows], return_counts=True)[1].astype(np.int64)
            labels = fields["right"][rows]
            sequence.targets[self.name] = {"rows": Rows(self.stream, rows), "labels": labels, "candidates": counts}
        return {}

    def _hide(self, sequence: Sequence) -> None:
        """Drop the candidates of mentions with a token that is taken."""
        taken = np.append(0, np.cumsum(sequence.fields(self.tokens)["taken"]))
        places = sequence.fields(self.mentions)
        first, last = (np.asarray(places[name]) for name in ("token", "last"))
        masked = taken[np.maximum(first, last) + 1] > taken[first]
        drop(sequence, masked[sequence.fields(self.stream)["mention"].index], self.stream)

    def count(self, batch: Batch) -> float:
        """Mentions with a right candidate; with the margin, candidates."""
        labels = batch.targets.get(self.name, {}).get("labels")
        if labels is None:
            return 0.0
        return float(labels.sum() if self.loss == "likelihood" else len(labels))

    def measure(self, made: Mapping[str, Tensor]) -> dict[str, float]:
        """`accuracy` of the best candidate and `mrr`, among the mentions with a right one; equal scores share ranks."""
        counts = made["candidates"].tolist()
        parts = zip(made["scores"].split(counts), made["labels"].split(counts), strict=True)
        ranked = [realistic_rank(scores.numpy(), int(right.argmax())) for scores, right in parts if right.any()]
        if not ranked:
            return {}
        found = rank_scores(*zip(*ranked, strict=True))
        return {"accuracy": found.accuracy, "mrr": found.mrr}

    def head(self, network: Network) -> Head:
        """Reads the linker's scores; it has no weights of its own.

        Raises:
            WorkbenchError: no layer of the network links the stream.
        """
        linked = [layer.candidates for layer in network.layers if isinstance(getattr(layer, "candidates", None), str)]
        if self.stream not in linked:
            raise WorkbenchError(
                f"it needs a layer kg.kar with candidates: {self.stream} in the model; found layers for "
                f"{', '.join(map(str, linked)) or 'none'}"
            )
        return EntityLinkingHead(self.stream, self.loss, self.margin)


class EntityLinkingHead(Head):
    """The loss of the scores of candidates, grouped by mention."""

    def __init__(self, stream: str, loss: Loss = "likelihood", margin: float = 0.2) -> None:
        super().__init__()
        self.stream, self.loss, self.margin = stream, loss, margin

    def forward(self, inputs: HeadInputs) -> LossOutput:
        """Metrics, among mentions with a right candidate: `accuracy`, and that of the corpus's own scores
        (`prior_accuracy`)."""
        targets = inputs.targets
        rows, labels, counts = targets["rows"], targets["labels"], inputs.known("candidates")
        scores = inputs.read().taps[self.stream]["scores"][rows]
        priors = inputs.batch.streams[self.stream].fields["prior"][rows]
        made = {"scores": scores.detach(), "priors": priors, "labels": labels, "candidates": targets["candidates"]}
        right = by_mention(inputs.known("labels"), counts, 0)
        known = rows_where(right.any(1), scores.device)
        gold = on_device(right.argmax(1)[right.any(1)], scores.device)
        given = by_mention(scores, counts).index_select(0, known)
        chosen = {"accuracy": given, "prior_accuracy": by_mention(priors, counts).index_select(0, known)}
        metrics: Metrics = {name: ((found.argmax(1) == gold).sum(), float(len(gold))) for name, found in chosen.items()}
        if self.loss == "likelihood":
            loss = F.cross_entropy(given, gold, reduction="sum")
        else:
            loss = (self.margin - torch.where(labels > 0, scores, -scores)).clamp_min(0).sum()
        return LossOutput(loss, metrics, made)


def by_mention(values: Tensor, counts: Tensor, fill: float = -torch.inf) -> Tensor:
    """Values of candidates, one mention's after the other's, as [mentions, most candidates]; at least one column.

    Args:
        counts: [mentions], candidates of each, on the host.
    """
    return padded_groups(values, counts.cpu(), fill=fill)[0]
