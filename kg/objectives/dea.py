"""Denoising entity auto-encoder (dEA): which entity does this token mean?

Zhang et al., "ERNIE: Enhanced Language Representation with Informative Entities", ACL 2019 (arXiv 1905.07129),
section 3.4, as released. Of the entities of the micro-batch, 5 % are replaced by another of its entities, 15 % are
removed, 80 % stay. At every token that had an entity,

    p(e_j | w) = exp(transform(w) . e_j) / sum over the candidates k of exp(transform(w) . e_k)
    transform(w) = norm(gelu(W w + b))      of the entities' width

The candidates are the distinct entities of the micro-batch before the noise, with "none" (the zero vector, logit 0)
in front. The replacement is drawn from the candidates but "none", so it may be the entity itself, as released.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Share, Word
from workbench.models.network import Network
from workbench.models.norms import make_norm
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput, Objective
from workbench.sequences.rows import drop
from workbench.sequences.sequence import Rows, Sequence

NONE = 0


class RandomSource(Protocol):
    """A source of random numbers, such as a numpy Generator."""

    def random(self) -> float:
        """A number from [0, 1)."""

    def integers(self, low: int, high: int) -> int:
        """A whole number from [low, high)."""


def noise(
    labels: np.ndarray, candidates: np.ndarray, replaced: float, removed: float, source: RandomSource
) -> np.ndarray:
    """Noisy entities [entities] for the labels [entities] (places in `candidates`): table rows, `NONE` where removed.

    Per entity one `random`, and one `integers(1, candidates)` where it is replaced.
    """
    noisy = candidates[labels]
    for i in range(len(labels)):
        u = source.random()
        if u < replaced:
            noisy[i] = candidates[source.integers(1, len(candidates))]
        elif u < replaced + removed:
            noisy[i] = NONE
    return noisy


class Dea(Objective):
    """Denoising entity autoencoder (dEA; ERNIE-THU, Zhang et al., arXiv:1905.07129): the entity of a token is predicted
    among the entities of the micro-batch.

    Args:
        replaced: share of the entities that another one of the micro-batch replaces.
        removed: share of the entities whose row is taken out.
        stream: the stream of the entities.
        tokens: the stream of the tokens that they hang on.
    """

    def __init__(
        self, replaced: Share = 0.05, removed: Share = 0.15, stream: Word = "entity", tokens: Word = "text"
    ) -> None:
        if replaced + removed > 1:
            raise WorkbenchError(
                f"replaced = {replaced}, removed = {removed}; allowed: shares that together are at most 1"
            )
        self.replaced = replaced
        self.removed = removed
        self.stream, self.tokens = stream, tokens

    @property
    def looks_up(self) -> dict[str, str]:
        return {"candidates": self.stream}

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        """Noise the entity rows; targets `rows` (tokens) and `labels` per sequence, `candidates` for the batch."""
        streams = [s.streams[self.stream]["entity_ids"] for s in sequences if self.stream in s.streams]
        candidates = np.unique(np.concatenate([np.array([NONE], np.int64), *streams]))
        for sequence in sequences:
            if self.stream in sequence.streams:
                self._corrupt(sequence, candidates, draws)
        return {"candidates": candidates}

    def _corrupt(self, sequence: Sequence, candidates: np.ndarray, draws: Draws) -> None:
        entity = sequence.streams[self.stream]
        linked = entity["entity_ids"] != NONE
        labels = np.searchsorted(candidates, entity["entity_ids"][linked])
        sequence.targets[self.name] = {"rows": Rows(self.tokens, entity["token"].index[linked]), "labels": labels}
        noisy = entity["entity_ids"].copy()
        noisy[linked] = noise(labels, candidates, self.replaced, self.removed, draws.of(sequence.draw))
        entity["entity_ids"] = noisy
        drop(sequence, linked & (noisy == NONE), self.stream)

    def head(self, network: Network) -> Head:
        """Predicts from the tokens' states, in the width of the entity stream's embedding.

        Raises:
            WorkbenchError: the network has no such stream.
        """
        if self.stream not in network.sizes:
            raise WorkbenchError(f"it needs a stream {self.stream!r} in the model; found {', '.join(network.sizes)}")
        return DeaHead(network.sizes[self.tokens], network.sizes[self.stream], self.stream, self.tokens)


class DeaHead(Head):
    """Cross-entropy of transform(token) . candidate over the candidates."""

    def __init__(
        self,
        hidden_size: int,
        entity_size: int,
        stream: str = "entity",
        tokens: str = "text",
        norm_eps: float = 1e-12,
    ) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, entity_size)
        self.norm = make_norm("layer", entity_size, norm_eps)
        self.stream, self.tokens = stream, tokens

    def logits(self, rows: Tensor, candidates: Tensor) -> Tensor:
        """Token rows [tokens, hidden_size], candidate vectors [candidates, entity_size] -> [tokens, candidates]."""
        return self.norm(F.gelu(self.dense(rows))) @ candidates.T

    def forward(self, inputs: HeadInputs) -> LossOutput:
        """Sum over all tokens that had an entity; metric `accuracy`."""
        targets, tokens = inputs.targets, inputs.states[self.tokens]
        candidates = inputs.network.embeddings[self.stream]({"entity_ids": targets["candidates"]})
        rows, labels = targets.get("rows"), targets.get("labels")
        if rows is None or labels is None:
            rows = labels = torch.zeros(0, dtype=torch.long, device=candidates.device)
        logits = self.logits(tokens[rows], candidates.to(tokens.dtype)).float()
        loss = F.cross_entropy(logits, labels, reduction="sum")
        correct = (logits.argmax(-1) == labels).sum()
        return LossOutput(loss, {"accuracy": (correct, float(len(labels)))})
