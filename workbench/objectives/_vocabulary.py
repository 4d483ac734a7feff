"""What the heads that predict tokens share: the tied table and the loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor, nn

from workbench.errors import WorkbenchError
from workbench.tasks.objective import LossOutput

if TYPE_CHECKING:
    from workbench.models.network import Network


def token_table(network: Network) -> Tensor:
    """The token embedding of the network's text stream [vocab_size, width], for a tied decoder.

    Raises:
        WorkbenchError: the network has no text stream with a token table.
    """
    table = getattr(getattr(network.embeddings, "text", None), "token", None)
    if not isinstance(table, nn.Embedding):
        raise WorkbenchError(
            "the objective predicts tokens, but there is no text stream with a token table "
            f"(streams: {', '.join(network.embeddings) or 'none'}); add `text: {{embedding: token}}` to it"
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
