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
    """

    def __init__(self, network: Network, stream: str, tied: bool = True, scaled: bool = False) -> None:
        super().__init__()
        self.stream = stream
        (vocab_size, width), hidden_size = token_table(network, stream).shape, network.sizes[stream]
        self.output = None if tied else nn.Linear(hidden_size, vocab_size, bias=False)
        narrower = tied and width != hidden_size
        self.projection: nn.Module = nn.Linear(hidden_size, width, bias=False) if narrower else nn.Identity()
        self.scale = hidden_size**-0.5 if scaled else 1.0
        self.loss = TokenLoss()

    def logits(self, network: Network, rows: Tensor) -> Tensor:
        """States [rows, hidden_size] -> scores of the vocabulary [rows, vocab_size]."""
        if self.output is not None:
            scores: Tensor = self.output(rows)
            return scores
        scaled = rows if self.scale == 1.0 else rows * self.scale
        return F.linear(self.projection(scaled), token_table(network, self.stream))

    def forward(self, seen: Seen) -> LossOutput:
        logits = self.logits(seen.network, seen.states[self.stream][seen.targets["rows"]])
        return self.loss(logits, seen.targets["labels"])
