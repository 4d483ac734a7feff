"""Masked diffusion (MDLM, Sahoo et al., NeurIPS 2024, arXiv:2406.07524, section 3; LLaDA, Nie et al., arXiv:2502.09992,
equation 3).

    L = - sum over texts, with t from a uniform distribution over (0, 1), of 1 / t sum over masked i of log p(x_i | x_t)

In x_t each token of a text is masked with the probability t, independently of the others. The sum over the number of
tokens that may be masked is on average an upper bound of the negative log-likelihood of a token. The loss of `clm` is
comparable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from workbench.core.keyed import Draws
from workbench.core.options.bounds import SomeShare, Word
from workbench.objectives._token_head import PLAIN, HeadOptions, TokenHead, TokenLoss
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput, Objective
from workbench.sequences.batch import Batch
from workbench.sequences.selection import selectable
from workbench.sequences.sequence import Rows, Sequence
from workbench.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from workbench.models.network import Network


class MaskedDiffusion(Objective):
    """Masked diffusion (MDLM, arXiv:2406.07524; LLaDA, arXiv:2502.09992): a random share of each text's tokens is
    masked, and their losses are weighted with one over the share.

    Args:
        least: the least share, which is linear in a uniform number: t = least + (1 - least) u. It bounds the weights.
        stream: the stream of the tokens.
        head: {tied, bias, transform} of the head.
    """

    predicts = "tokens"

    def __init__(
        self, tokenizer: Tokenizer, least: SomeShare = 1e-3, stream: Word = "text", head: HeadOptions = PLAIN
    ) -> None:
        self.mask, self.least = tokenizer.id("mask"), least
        self.stream, self.head_options = stream, head

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            text, rng = sequence.fields(self.stream), draws.of(sequence.draw)
            free = np.flatnonzero(selectable(text))
            share = self.least + (1 - self.least) * rng.random()
            rows = free[rng.random(len(free)) < share]
            sequence.targets[self.name] = {
                "rows": Rows(self.stream, rows),
                "labels": text["input_ids"][rows].copy(),
                "weights": np.full(len(rows), 1 / share, np.float32),
                "tokens": np.array([len(free)], np.int64),
            }
            text["input_ids"][rows] = self.mask
            text["taken"][rows] = True
        return {}

    def count(self, batch: Batch) -> float:
        """The number of tokens that may be masked."""
        targets = batch.targets.get(self.name, {})
        return float(targets["tokens"].sum()) if "tokens" in targets else 0.0

    def head(self, network: Network) -> Head:
        return DiffusionHead(network, self.stream, self.head_options)


class DiffusionHead(TokenHead):
    """The head of predicted tokens, whose losses have weights."""

    def __init__(self, network: Network, stream: str, options: HeadOptions) -> None:
        super().__init__(network, stream, options)
        self.loss = WeightedTokenLoss()

    def forward(self, inputs: HeadInputs) -> LossOutput:
        targets = inputs.targets
        rows, table, bias = self._factors(inputs.network, inputs.states[self.stream][targets["rows"]])
        wanted = torch.stack([targets["labels"].double(), targets["weights"].double()], 1)
        return self.loss.of_rows(rows, table, bias, wanted)


class WeightedTokenLoss(TokenLoss):
    """Sum of weighted cross-entropies in float32, and accuracy."""

    def forward(self, logits: Tensor, labels: Tensor) -> LossOutput:
        """`logits` [rows, classes], `labels` [rows, 2]: labels, and weights."""
        wanted, weights = labels[:, 0].long(), labels[:, 1].float()
        loss = (weights * F.cross_entropy(logits.float(), wanted, reduction="none")).sum()
        right = (logits.argmax(-1) == wanted).sum()
        return LossOutput(loss, {"accuracy": (right, torch.full_like(right, len(wanted)))})
