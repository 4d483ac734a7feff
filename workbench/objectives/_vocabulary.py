"""What the heads that predict tokens share: the table of a stream, and the loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.pretraining.objective import LossOutput

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
