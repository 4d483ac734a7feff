"""Building blocks of layers: norms, activations, feed-forward, multi-head attention over rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workbench.errors import WorkbenchError
from workbench.models.attention.call import attend
from workbench.models.context import Context, Layout
from workbench.models.dropout import dropout
from workbench.models.rotary import rotate

Activation = Literal["gelu", "gelu_tanh", "relu", "tanh", "swiglu"]
NormKind = Literal["layer", "rms", "unbiased"]
NormPlace = Literal["post", "pre"]

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "tanh": torch.tanh,
    "swiglu": F.silu,
}


class UnbiasedNorm(nn.Module):
    """K-BERT's norm: gain * (x - mean) / (std + eps) + bias, with the unbiased standard deviation (divide by n - 1)."""

    def __init__(self, size: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        return self.weight * (x - mean) / (x.std(-1, keepdim=True) + self.eps) + self.bias


NORMS: dict[NormKind, Callable[..., nn.Module]] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm, "unbiased": UnbiasedNorm}


def make_norm(kind: NormKind, size: int, eps: float) -> nn.Module:
    """A norm over the last dimension: `layer`, `rms`, or `unbiased` (K-BERT's)."""
    return NORMS[kind](size, eps=eps)


def activation(name: Activation) -> Callable[[Tensor], Tensor]:
    """The activation function of this name."""
    return ACTIVATIONS[name]


class FeedForward(nn.Module):
    """outer(act(inner(x))); with `swiglu` outer(silu(gate) * inner), both from one matrix (arXiv:2002.05202)."""

    def __init__(self, hidden_size: int, intermediate_size: int, activation_name: Activation = "gelu") -> None:
        super().__init__()
        self.activation = activation(activation_name)
        self.gated = activation_name == "swiglu"
        self.inner = nn.Linear(hidden_size, intermediate_size * (2 if self.gated else 1))
        self.outer = nn.Linear(intermediate_size, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        if self.gated:
            gate, value = self.inner(x).chunk(2, dim=-1)
            return self.outer(self.activation(gate) * value)
        return self.outer(self.activation(self.inner(x)))


class MultiHeadAttention(nn.Module):
    """Multi-head attention over rows.

    Args:
        hidden_size: width of the queries' rows and of the result.
        key_size: width of the keys' rows where they are another stream's; None shares one matrix `qkv`.
        inner_size: heads x head size, where it is not hidden_size.
        dropout: of the attention weights, as published.
        rotary: base of rotary positions (arXiv:2104.09864), applied where the rows carry `position_ids`.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        *,
        key_size: int | None = None,
        inner_size: int | None = None,
        dropout: float = 0.0,
        rotary: float | None = None,
    ) -> None:
        super().__init__()
        inner = inner_size or hidden_size
        if inner % num_heads:
            raise WorkbenchError(
                f"num_heads = {num_heads} does not divide the width {inner} of the attention; choose a number that does"
            )
        self.num_heads = num_heads
        self.head_size = inner // num_heads
        self.dropout = dropout
        self.rotary = rotary
        if key_size is None:
            self.qkv = nn.Linear(hidden_size, 3 * inner)
        else:
            self.query = nn.Linear(hidden_size, inner)
            self.key_value = nn.Linear(key_size, 2 * inner)
        self.output = nn.Linear(inner, hidden_size)

    def forward(
        self,
        query_rows: Tensor,
        key_rows: Tensor | None,
        queries: Layout,
        keys: Layout,
        *,
        context: Context,
        names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ()),
    ) -> Tensor:
        """Rows [rows_q, hidden_size] and [rows_k, key_size] (None: the same rows) -> [rows_q, hidden_size].

        `names` are the streams of the queries and of the keys: for rotary positions and for kept attention weights.
        """
        q, k, v = self._heads(query_rows, key_rows)
        if self.rotary is not None:
            q = rotate(q, _positions(context, names[0]), self.rotary)
            k = rotate(k, _positions(context, names[1]), self.rotary)
        dropout = self.dropout if self.training else 0.0
        out, weights = attend(q, k, v, queries, keys, dropout=dropout, need_weights=context.keep_attention)
        if weights is not None:
            context.attention.append((*names, weights))
        return self.output(out.flatten(1))

    def _heads(self, query_rows: Tensor, key_rows: Tensor | None) -> list[Tensor]:
        shape = (-1, self.num_heads, self.head_size)
        if hasattr(self, "qkv"):
            if key_rows is None:
                return [part.view(shape) for part in self.qkv(query_rows).chunk(3, dim=-1)]
            q_weight, kv_weight = self.qkv.weight.tensor_split([self.num_heads * self.head_size])
            q_bias, kv_bias = self.qkv.bias.tensor_split([self.num_heads * self.head_size])
            q, kv = F.linear(query_rows, q_weight, q_bias), F.linear(key_rows, kv_weight, kv_bias)
        else:
            q, kv = self.query(query_rows), self.key_value(query_rows if key_rows is None else key_rows)
        return [part.view(shape) for part in (q, *kv.chunk(2, dim=-1))]


def _positions(context: Context, streams: tuple[str, ...]) -> Tensor:
    """Positions of the rows of these streams, in `torch.cat` order; a stream without them counts its rows."""
    parts = []
    for name in streams:
        fields = context.fields(name)
        parts.append(fields["position_ids"] if "position_ids" in fields else context.layout(name).index)
    return torch.cat(parts)


class Sublayer(nn.Module):
    """Residual connection, dropout and norm around a function: post-norm as BERT, or pre-norm."""

    def __init__(self, size: int, *, dropout: float, norm: NormKind, norm_place: NormPlace, norm_eps: float) -> None:
        super().__init__()
        self.norm = make_norm(norm, size, norm_eps)
        self.dropout = dropout
        self.pre = norm_place == "pre"

    def enter(self, x: Tensor) -> Tensor:
        """What the function gets."""
        return self.norm(x) if self.pre else x

    def leave(self, x: Tensor, result: Tensor) -> Tensor:
        """What comes out, given the input and the function's result."""
        total = x + dropout(result, self.dropout, self.training)
        return total if self.pre else self.norm(total)
