"""The head of objectives that predict tokens of a stream, its loss, and its options in a recipe (`head`).

    scores = E t(h) + b

E is the token embedding of the stream (`tied`) or a matrix of the head's own, b a bias of each token, and t BERT's
transform, LayerNorm(activation(W h + c)) (arXiv:1810.04805), or nothing. Then states are multiplied with E directly, or
after a projection without bias where E has another width. A matrix of the head's own is as wide as the token embedding
after a transform, and as wide as the states without one. It needs no token embedding: where the stream has none
(characters, bytes), it has a row for each token of the run's tokenizer.

Scores of many rows take more memory than all else of a step. On CUDA they are made, scored and forgotten in chunks of
`CHUNK` rows, where there are more than that: the gradient of a chunk is made with its loss, so that none of its scores
wait for the backward pass (Hsu et al. 2024, "Liger Kernel", arXiv:2410.10989). GPT-2 of base size, with 58,000 rows
over a vocabulary of 50,528, takes 24.5 GiB of a card so, and 53.5 GiB all at once. On a CPU chunks save no time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Epsilon
from workbench.models.feed_forward import ACTIVATIONS, Ungated
from workbench.models.tensor_cut import is_spread
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import Head, LossOutput

if TYPE_CHECKING:
    from workbench.models.network import Network

CHUNK = 4096
"""The number of rows whose scores are in memory at once."""
CHUNKED = ("cuda",)
"""The devices that score more rows than that in chunks."""


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
        reads_width: the width of the scored rows, where these are stretches of the stream's.
    """

    by_token: tuple[str, ...] = ("bias",)

    def __init__(
        self,
        network: Network,
        stream: str = "text",
        options: HeadOptions = PLAIN,
        scaled: bool = False,
        reads: str | None = None,
        reads_width: int | None = None,
    ) -> None:
        super().__init__()
        self.stream, self.reads = stream, reads or stream
        tokens, table_width = _table_shape(network, stream, options.tied)
        hidden_size = reads_width or network.sizes[self.reads]
        self.transform = options.transform
        width = table_width if options.tied or options.transform else hidden_size
        if self.transform is None:
            self.projection = to_width(hidden_size, width)
        else:
            self.dense = nn.Linear(hidden_size, width, bias=self.transform.bias)
            self.norm = nn.LayerNorm(width, eps=self.transform.norm_eps, bias=self.transform.bias)
        self.output = None if options.tied else nn.Linear(width, tokens, bias=False)
        self.bias = nn.Parameter(torch.zeros(tokens)) if options.bias else None
        self.scale = hidden_size**-0.5 if scaled else 1.0
        self.loss = TokenLoss()

    def logits(self, network: Network, rows: Tensor) -> Tensor:
        """States [rows, hidden_size] -> scores of the vocabulary [rows, vocab_size]."""
        return F.linear(*self._factors(network, rows))

    def _factors(self, network: Network, rows: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """t(h) of states h [rows, hidden_size], E, and b."""
        rows = rows if self.scale == 1.0 else rows * self.scale
        if self.transform is None:
            rows = self.projection(rows)
        else:
            rows = self.norm(ACTIVATIONS[self.transform.activation](self.dense(rows)))
        return rows, token_table(network, self.stream) if self.output is None else self.output.weight, self.bias

    def forward(self, inputs: HeadInputs) -> LossOutput:
        rows, table, bias = self._factors(inputs.network, inputs.states[self.reads][inputs.targets["rows"]])
        return self.loss.of_rows(rows, table, bias, inputs.targets["labels"])


def token_table(network: Network, stream: str) -> Tensor:
    """The token embedding of a stream of the network [vocab_size, width], for a tied decoder.

    Raises:
        WorkbenchError: the network has no such stream with a token table.
    """
    table = _table_of(network, stream)
    if table is None:
        raise WorkbenchError(
            f"the objective predicts tokens, but there is no stream {stream!r} with a token table "
            f"(streams: {', '.join(network.embeddings) or 'none'}); add `{stream}: {{embedding: token}}` to it, "
            "name another (`stream`), or set `head: {{tied: false}}` where the objective has it"
        )
    return table.weight


def _table_shape(network: Network, stream: str, tied: bool) -> tuple[int, int]:
    """The rows and the width of E, where a head of its own follows the stream's table, or stands in for one."""
    if not tied and stream in network.embeddings and network.vocab_size and _table_of(network, stream) is None:
        return network.vocab_size, network.sizes[stream]
    rows, width = token_table(network, stream).shape
    return rows, width


def _table_of(network: Network, stream: str) -> nn.Embedding | None:
    table = getattr(dict(network.embeddings.items()).get(stream), "token", None)
    return table if isinstance(table, nn.Embedding) else None


def to_width(hidden_size: int, width: int) -> nn.Module:
    """The layer that brings rows of a stream to the width of its table of tokens; the identity where they have it."""
    return nn.Identity() if width == hidden_size else nn.Linear(hidden_size, width, bias=False)


class TokenLoss(nn.Module):
    """Sum of cross-entropies in float32, and accuracy.

    Attributes:
        smoothing: in training, the share of each label's weight that all classes have evenly.
    """

    smoothing: float = 0.0

    def forward(self, logits: Tensor, labels: Tensor) -> LossOutput:
        """`logits` [rows, classes], `labels` [rows], -100 = not counted."""
        smoothing = self.smoothing if self.training else 0.0
        loss = F.cross_entropy(logits.float(), labels, ignore_index=-100, reduction="sum", label_smoothing=smoothing)
        counted = labels != -100
        right = ((logits.argmax(-1) == labels) & counted).sum()
        return LossOutput(loss, {"accuracy": (right, counted.sum())})

    def of_rows(self, rows: Tensor, table: Tensor, bias: Tensor | None, labels: Tensor) -> LossOutput:
        """The same of the scores rows table^T + bias, in chunks where the device has them (`CHUNKED`).

        Args:
            rows: [rows, width].
            table: [classes, width]; one that is divided over ranks is multiplied at once.
            bias: [classes].
        """
        if rows.device.type not in CHUNKED or len(rows) <= CHUNK or is_spread(table):
            return self(F.linear(rows, table, bias), labels)
        loss, right, counted = ChunkedLoss.apply(self, labels, torch.is_grad_enabled(), rows, table, bias)
        return LossOutput(loss, {"accuracy": (right, counted)})


class ChunkedLoss(torch.autograd.Function):
    """The loss of many rows, in chunks whose gradients are made in the forward. They are added up in float32."""

    @staticmethod
    def forward(
        ctx: Any, loss: TokenLoss, labels: Tensor, learns: bool, rows: Tensor, table: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, ...]:
        device = rows.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else rows.dtype
        ctx.dtypes = [None if factor is None else factor.dtype for factor in (rows, table, bias)]
        x, e, b = rows.to(dtype), table.to(dtype), None if bias is None else bias.to(dtype)
        of_rows: list[Tensor] = []
        of_table = torch.zeros_like(table, dtype=torch.float32) if learns and table.requires_grad else None
        of_bias = torch.zeros_like(bias, dtype=torch.float32) if learns and bias is not None else None
        sums: list[tuple[Tensor, ...]] = []
        with torch.autocast(device, enabled=False):
            for part, wanted in zip(x.split(CHUNK), labels.split(CHUNK), strict=True):
                with torch.set_grad_enabled(learns):
                    logits = F.linear(part, e, b).detach().requires_grad_(learns)
                    output = loss(logits, wanted)
                sums.append((output.loss.detach(), *output.metrics["accuracy"]))
                if not learns:
                    continue
                (gradient,) = torch.autograd.grad(output.loss, logits)
                of_rows.append(gradient @ e)
                if of_table is not None:
                    of_table += gradient.t() @ part
                if of_bias is not None:
                    of_bias += gradient.sum(0, dtype=torch.float32)
        ctx.gradients = torch.cat(of_rows) if learns else None, of_table, of_bias
        found = tuple(torch.stack(values).sum(0) for values in zip(*sums, strict=True))
        ctx.mark_non_differentiable(*found[1:])
        return found

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor | None, ...]:
        found = zip(ctx.gradients, ctx.dtypes, strict=True)
        return None, None, None, *(None if own is None else (own * given[0]).to(dtype) for own, dtype in found)
