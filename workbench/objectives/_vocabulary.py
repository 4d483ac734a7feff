"""What the heads that predict tokens share: the tied table, the loss, the head of those that predict the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor, nn

from workbench.errors import WorkbenchError
from workbench.tasks.forward import Seen
from workbench.tasks.objective import Head, LossOutput

if TYPE_CHECKING:
    from workbench.models.network import Network


def token_table(network: Network, stream: str) -> Tensor:
    """The token embedding of a stream of the network [vocab_size, width], for a tied decoder.

    Raises:
        WorkbenchError: the network has no such stream with a token table.
    """
    table = getattr(dict(network.embeddings.items()).get(stream), "token", None)
    if not isinstance(table, nn.Embedding):
        raise WorkbenchError(
            f"the objective predicts tokens, but there is no stream {stream!r} with a token table "
            f"(streams: {', '.join(network.embeddings) or 'none'}); add `{stream}: {{embedding: token}}` to it, or "
            "name another (`stream`)"
        )
    return table.weight


def to_width(hidden_size: int, width: int) -> nn.Module:
    """What makes rows of a stream as wide as its table of tokens: nothing where they are."""
    return nn.Identity() if width == hidden_size else nn.Linear(hidden_size, width, bias=False)


class TokenLoss(nn.Module):
    """Sum of cross-entropies in float32, and accuracy."""

    def forward(self, logits: Tensor, labels: Tensor) -> LossOutput:
        """`logits` [rows, classes], `labels` [rows], -100 = not counted."""
        loss = F.cross_entropy(logits.float(), labels, ignore_index=-100, reduction="sum")
        counted = labels != -100
        right = ((logits.argmax(-1) == labels) & counted).sum()
        return LossOutput(loss, {"accuracy": (right, counted.sum())})


class NextTokenHead(Head):
    """The tokens of a stream, by its table or by a matrix of the head's own.

    Args:
        tied: whether the table is taken; with a projection before it where the embedding is of another width.
        scaled: whether states are scaled by 1 / sqrt(hidden_size) before the table (T5).
        bias: whether each token has a bias beside its row of the table (XLM).
    """

    by_token = ("bias",)

    def __init__(
        self, network: Network, stream: str, tied: bool = True, scaled: bool = False, bias: bool = False
    ) -> None:
        super().__init__()
        self.stream = stream
        table, hidden_size = token_table(network, stream), network.sizes[stream]
        self.output = None if tied else nn.Linear(hidden_size, len(table), bias=False)
        self.projection = to_width(hidden_size, table.shape[1] if tied else hidden_size)
        self.bias = nn.Parameter(table.new_zeros(len(table))) if bias else None
        self.scale = hidden_size**-0.5 if scaled else 1.0
        self.loss = TokenLoss()

    def logits(self, network: Network, rows: Tensor) -> Tensor:
        """States [rows, hidden_size] -> scores of the vocabulary [rows, vocab_size]."""
        if self.output is not None:
            scores: Tensor = self.output(rows)
            return scores
        scaled = rows if self.scale == 1.0 else rows * self.scale
        return F.linear(self.projection(scaled), token_table(network, self.stream), self.bias)

    def forward(self, seen: Seen) -> LossOutput:
        logits = self.logits(seen.network, seen.states[self.stream][seen.targets["rows"]])
        return self.loss(logits, seen.targets["labels"])
