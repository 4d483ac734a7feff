"""The head of objectives that predict tokens of a stream, its loss, and its options in a recipe (`head`).

    scores = E t(h) + b

E is the token embedding of the stream (`tied`) or a matrix of the head's own, b a bias of each token, and t BERT's
transform, LayerNorm(activation(W h + c)) (arXiv:1810.04805), or nothing. Then states are multiplied with E directly, or
after a projection without bias where E has another width. A matrix of the head's own is as wide as the token embedding
after a transform, and as wide as the states without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Epsilon
from workbench.models.blocks import ACTIVATIONS, Ungated
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import Head, LossOutput

if TYPE_CHECKING:
    from workbench.models.network import Network


@dataclass(frozen=True)
class HeadTransform:
    """The layers before the table: LayerNorm(activation(W h + c)).

    Attributes:
        activation: between the linear layer and the norm.
        norm_eps: of the norm.
        bias: whether the linear layer and the norm have one.
    """

    activation: Ungated = "gelu"
    norm_eps: Epsilon = 1e-12
    bias: bool = True


@dataclass(frozen=True)
class HeadOptions:
    """A head that predicts the next token: the table alone (GPT).

    Attributes:
        tied: whether the table is the stream's token embedding, or a matrix of the head's own (T5 1.1).
        bias: whether each token has one, in addition to its row of the table (XLM).
        transform: the layers before the table; by default none.
    """

    tied: bool = True
    bias: bool = False
    transform: HeadTransform | None = None


@dataclass(frozen=True)
class BertHeadOptions(HeadOptions):
    """A head that predicts masked tokens, with BERT's defaults.

    Attributes:
        bias: whether each token has one, in addition to its row of the table.
        transform: the layers before the table; null for none (XLM).
    """

    bias: bool = True
    transform: HeadTransform | None = HeadTransform()


PLAIN, BERT = HeadOptions(), BertHeadOptions()


class TokenHead(Head):
    """Scores of the vocabulary for rows of a stream.

    Args:
        stream: the stream of the tokens, which owns the table.
        scaled: whether states are scaled by 1 / sqrt(hidden_size) before the table (T5).
        reads: the stream whose rows are scored, where it is not that of the tokens (XLNet's queries).
    """

    by_token: tuple[str, ...] = ("bias",)

    def __init__(
        self,
        network: Network,
        stream: str = "text",
        options: HeadOptions = PLAIN,
        scaled: bool = False,
        reads: str | None = None,
    ) -> None:
        super().__init__()
        self.stream, self.reads = stream, reads or stream
        table, hidden_size = token_table(network, stream), network.sizes[self.reads]
        self.transform = options.transform
        width = table.shape[1] if options.tied or options.transform else hidden_size
        if self.transform is None:
            self.projection = to_width(hidden_size, width)
        else:
            self.dense = nn.Linear(hidden_size, width, bias=self.transform.bias)
            self.norm = nn.LayerNorm(width, eps=self.transform.norm_eps, bias=self.transform.bias)
        self.output = None if options.tied else nn.Linear(width, len(table), bias=False)
        self.bias = nn.Parameter(table.new_zeros(len(table))) if options.bias else None
        self.scale = hidden_size**-0.5 if scaled else 1.0
        self.loss = TokenLoss()

    def logits(self, network: Network, rows: Tensor) -> Tensor:
        """States [rows, hidden_size] -> scores of the vocabulary [rows, vocab_size]."""
        rows = rows if self.scale == 1.0 else rows * self.scale
        if self.transform is None:
            rows = self.projection(rows)
        else:
            rows = self.norm(ACTIVATIONS[self.transform.activation](self.dense(rows)))
        table = token_table(network, self.stream) if self.output is None else self.output.weight
        return F.linear(rows, table, self.bias)

    def forward(self, seen: HeadInputs) -> LossOutput:
        logits = self.logits(seen.network, seen.states[self.reads][seen.targets["rows"]])
        return self.loss(logits, seen.targets["labels"])


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
    """The layer that brings rows of a stream to the width of its table of tokens; the identity where they have it."""
    return nn.Identity() if width == hidden_size else nn.Linear(hidden_size, width, bias=False)


class TokenLoss(nn.Module):
    """Sum of cross-entropies in float32, and accuracy."""

    def forward(self, logits: Tensor, labels: Tensor) -> LossOutput:
        """`logits` [rows, classes], `labels` [rows], -100 = not counted."""
        loss = F.cross_entropy(logits.float(), labels, ignore_index=-100, reduction="sum")
        counted = labels != -100
        right = ((logits.argmax(-1) == labels) & counted).sum()
        return LossOutput(loss, {"accuracy": (right, counted.sum())})
