"""Building blocks of layers: options, norms, activations, feed-forward, multi-head attention over rows, and the two
sublayers of every Transformer layer (`AttentionBlock`, `FeedForwardBlock`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workbench.components.building import build
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import (
    ComponentName,
    ComponentSpec,
    CountOrZero,
    Dropout,
    Epsilon,
    Heads,
    Positive,
    Size,
)
from workbench.models.attention.call import attend
from workbench.models.attention.key_values import KeyValueHook, KeyValues
from workbench.models.attention.score_bias import ScoreBias
from workbench.models.context import Context
from workbench.models.dropout import dropout
from workbench.models.layout import Layout, rotate
from workbench.models.tensor_cut import CutModule, HeadRange, TensorCuts

Ungated = Literal["gelu", "gelu_tanh", "quick_gelu", "relu", "tanh"]
Activation = Literal[Ungated, "swiglu", "geglu", "geglu_tanh"]
NormKind = Literal["layer", "rms", "unbiased"]
NormPlace = Literal["post", "pre"]

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),  # CLIP's
    "relu": F.relu,
    "tanh": torch.tanh,
    "swiglu": F.silu,
    "geglu": F.gelu,
    "geglu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}
GATED = ("swiglu", "geglu", "geglu_tanh")


class UnbiasedNorm(nn.Module):
    """K-BERT's norm: gain * (x - mean) / (std + eps) + bias, with the unbiased standard deviation (divide by n - 1)."""

    def __init__(self, size: int, eps: float = 1e-6, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size)) if bias else None
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        scaled = self.weight * (x - mean) / (x.std(-1, keepdim=True) + self.eps)
        return scaled if self.bias is None else scaled + self.bias


NORMS: dict[NormKind, Callable[..., nn.Module]] = {"layer": nn.LayerNorm, "unbiased": UnbiasedNorm}


def make_norm(kind: NormKind, size: int, eps: float, bias: bool = True) -> nn.Module:
    """A norm over the last dimension: `layer`, `rms` (which never has a bias), or `unbiased` (K-BERT's)."""
    return nn.RMSNorm(size, eps=eps) if kind == "rms" else NORMS[kind](size, eps=eps, bias=bias)


def activation(name: Activation) -> Callable[[Tensor], Tensor]:
    """The activation function of this name."""
    return ACTIVATIONS[name]


class FeedForward(CutModule, nn.Module):
    """outer(act(inner(x))); if gated (arXiv:2002.05202) outer(act(gate) * inner), both from one matrix."""

    def __init__(
        self, hidden_size: int, intermediate_size: int, activation_name: Activation = "gelu", bias: bool = True
    ) -> None:
        super().__init__()
        self.activation = activation(activation_name)
        self.gated = activation_name in GATED
        self.inner = nn.Linear(hidden_size, intermediate_size * (2 if self.gated else 1), bias=bias)
        self.outer = nn.Linear(intermediate_size, hidden_size, bias=bias)

    def tensor_cuts(self) -> TensorCuts:
        blocks = 2 if self.gated else 1
        size = {"intermediate_size": self.inner.out_features // blocks}
        return TensorCuts(size, columns={"inner": blocks}, rows={"outer": 1})

    def forward(self, x: Tensor) -> Tensor:
        x = self.entered(x)
        if self.gated:
            gate, value = self.inner(x).chunk(2, dim=-1)
            return self.outer(self.activation(gate) * value)
        return self.outer(self.activation(self.inner(x)))


class Sublayer(nn.Module):
    """Residual connection, dropout and norm around a function: post-norm as BERT, or pre-norm."""

    def __init__(self, norm: nn.Module, *, dropout: float, norm_place: NormPlace) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = dropout
        self.pre = norm_place == "pre"

    def enter(self, x: Tensor) -> Tensor:
        """The input of the function."""
        return self.norm(x) if self.pre else x

    def leave(self, x: Tensor, result: Tensor) -> Tensor:
        """The output of the sublayer, given its input and the function's result."""
        total = x + dropout(result, self.dropout, self.training)
        return total if self.pre else self.norm(total)


@dataclass(frozen=True)
class LayerOptions:
    """The options of every Transformer layer, declared here alone; the defaults are BERT's (arXiv:1810.04805).

    A layer takes them as `**options: Annotated[Any, LayerOptions]`, except those that it declares itself.

    Attributes:
        num_heads: heads of the attention.
        intermediate_size: of the feed-forward network, by default 4 x the hidden size.
        dropout: of the result of each sublayer.
        attention_dropout: of the attention weights.
        norm: layer, rms (which never has a bias) or unbiased (K-BERT's).
        norm_place: behind each residual connection (post, as in BERT) or at the start of each sublayer (pre).
        norm_eps: epsilon of the norms.
        rotary: base of rotary positions (arXiv:2104.09864).
        score_bias: a component that adds to the scores of attention (buckets).
        window: the greatest distance in rows at which a row is seen.
        scale: of the scores, by default 1 / sqrt(head size).
        bias: of linear maps and norms.
        attention_bias: of the linear maps of attention, by default as `bias`.
        inner_size: heads x head size of the attention, by default the hidden size (ViLBERT: 1024; T5's 11B: 16384).
        activation: gelu, gelu_tanh, quick_gelu, relu, tanh, or gated: swiglu, geglu, geglu_tanh.
    """

    num_heads: Heads
    intermediate_size: Size | None = None
    dropout: Dropout = 0.1
    attention_dropout: Dropout = 0.1
    norm: NormKind = "layer"
    norm_place: NormPlace = "post"
    norm_eps: Epsilon = 1e-12
    rotary: Positive | None = None
    score_bias: ComponentSpec | ComponentName | None = None
    window: CountOrZero | None = None
    scale: Positive | None = None
    bias: bool = True
    attention_bias: bool | None = None
    inner_size: Size | None = None
    activation: Activation = "gelu"

    def norm_of(self, size: int) -> nn.Module:
        return make_norm(self.norm, size, self.norm_eps, self.bias)

    def sublayer(self, size: int) -> Sublayer:
        return Sublayer(self.norm_of(size), dropout=self.dropout, norm_place=self.norm_place)


class MultiHeadAttention(CutModule, nn.Module):
    """Multi-head attention over rows.

    Args:
        hidden_size: width of the queries' rows and of the result.
        options: of the layer.
        key_size: width of the keys' rows where they are another stream's; None shares one matrix `qkv`.
    """

    heads: HeadRange | None = None
    """The heads of this rank, where other ranks have the others; `num_heads` counts those of this rank."""

    def __init__(self, hidden_size: int, options: LayerOptions, *, key_size: int | None = None) -> None:
        super().__init__()
        num_heads, inner = options.num_heads, options.inner_size or hidden_size
        if inner % num_heads:
            raise WorkbenchError(
                f"num_heads = {num_heads} does not divide the width {inner} of the attention; choose a number that does"
            )
        bias = options.bias if options.attention_bias is None else options.attention_bias
        self.num_heads = num_heads
        self.head_size = inner // num_heads
        self.dropout = options.attention_dropout
        self.rotary = options.rotary
        self.window, self.scale = options.window, options.scale
        about = {"num_heads": num_heads, "head_size": self.head_size}
        self.score_bias: ScoreBias | None = None
        if options.score_bias is not None:
            self.score_bias = build("score_bias", options.score_bias, "score_bias", **about)
            self.scale = self.score_bias.scale if self.scale is None else self.scale
        if key_size is None:
            self.qkv = nn.Linear(hidden_size, 3 * inner, bias=bias)
        else:
            self.query = nn.Linear(hidden_size, inner, bias=bias)
            self.key_value = nn.Linear(key_size, 2 * inner, bias=bias)
        self.seen = KeyValueHook(num_heads, self.head_size)
        self.output = nn.Linear(inner, hidden_size, bias=bias)
        if self.score_bias is not None:
            self.score_bias.check_attention(self)

    def tensor_cuts(self) -> TensorCuts:
        columns = {"qkv": 3} if hasattr(self, "qkv") else {"query": 1, "key_value": 2}
        return TensorCuts({"num_heads": self.num_heads}, columns=columns, rows={"output": 1})

    def take_part(self, rank: int, ranks: int) -> None:
        count = self.num_heads // ranks
        self.heads = HeadRange(rank * count, count, self.num_heads)
        self.num_heads = self.seen.num_heads = count

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

        `names` are the streams of the queries and of the keys, for kept attention weights and for a KV cache.
        """
        query_rows = self.entered(query_rows)
        key_rows = None if key_rows is None else self.entered(key_rows)
        q, k, v = self.heads_of(query_rows, key_rows)
        if self.rotary is not None:
            q = rotate(q, queries.turns(self.head_size, q.dtype, self.rotary))
            k = rotate(k, keys.turns(self.head_size, k.dtype, self.rotary))
        if context.projects:
            heads = (queries.contiguous(q), keys.contiguous(k), keys.contiguous(v))
            q_heads, k_heads, v_heads = (self.of_all_ranks(part.transpose(0, 1)) for part in heads)
            scale = self.head_size**-0.5 if self.scale is None else self.scale
            context.project(names, (q_heads, k_heads, v_heads), scale)
        if context.keeps("keys"):
            known, keys = context.recall(names[1], torch.stack([k, v], 1), apart=not self.seen.adapted)
            k, v = known.unbind(1)
        own = keys  # its lengths are read after the call: code is compiled for each list of numbers
        q, (k, v, keys) = self.faced(q, self.seen(KeyValues(k, v, keys)), query_rows, queries, names)
        out, weights = attend(
            *(q, k, v, queries, keys),
            dropout=self.dropout if self.training else 0.0,
            window=self.window,
            score_bias=None if self.score_bias is None else self.score_bias.bound(self),
            scale=self.scale,
            need_weights=context.looks,
            label=self._label(context.kind, names),
            heads=self.heads,
        )
        if weights is not None:  # without the keys that an adapter put before those of each sequence
            read = [w[..., w.shape[-1] - n :] for w, n in zip(weights, own.lengths, strict=True)]
            context.look(names, [self.of_all_ranks(w) for w in read])
        return self.output(out.flatten(1))

    def _label(self, kind: str, names: tuple[tuple[str, ...], tuple[str, ...]]) -> str:
        """The name of the attention in messages: the same for all layers of a kind."""
        own, read = (", ".join(side) for side in names)
        window = "" if self.window is None else f", window {self.window}"
        score_bias = (
            "" if self.score_bias is None else f", {type(self.score_bias).__name__.removesuffix('Bias').lower()}"
        )
        cut = "" if self.heads is None else f" ({self.heads.count} on each rank)"
        heads = f"{self.num_heads if self.heads is None else self.heads.total} heads{cut}"
        return f"{kind or 'rows'}({own}{'' if read == own else f' to {read}'}), {heads}{window}{score_bias}"

    def faced(
        self,
        q: Tensor,
        keys: KeyValues,
        query_rows: Tensor,
        queries: Layout,
        names: tuple[tuple[str, ...], tuple[str, ...]],
    ) -> tuple[Tensor, KeyValues]:
        """Queries and keys before their product, here unchanged: a hook for attention whose queries depend on the keys.

        The results may be wider than the values; `scale` must be set then.
        """
        return q, keys

    def heads_of(self, query_rows: Tensor, key_rows: Tensor | None = None) -> list[Tensor]:
        """Queries, keys and values [rows, heads, size] of rows that have entered."""
        shape = (-1, self.num_heads, self.head_size)
        if hasattr(self, "qkv"):
            if key_rows is None:
                return [part.view(shape) for part in self.qkv(query_rows).chunk(3, dim=-1)]
            q_weight, kv_weight = self.qkv.weight.tensor_split([self.num_heads * self.head_size])
            q_bias, kv_bias = None, None
            if self.qkv.bias is not None:
                q_bias, kv_bias = self.qkv.bias.tensor_split([self.num_heads * self.head_size])
            q, kv = F.linear(query_rows, q_weight, q_bias), F.linear(key_rows, kv_weight, kv_bias)
        else:
            q, kv = self.query(query_rows), self.key_value(query_rows if key_rows is None else key_rows)
        return [part.view(shape) for part in (q, *kv.chunk(2, dim=-1))]


class AttentionBlock(nn.Module):
    """Attention from one set of rows to another (or itself) with residual and norm.

    `normed`: whether there is a norm at all, which only pre-norm layers do without;
    `key_norm`: in pre-norm layers, whether another stream's rows are normed before they are read;
    `kind`: the attention, constructed as `MultiHeadAttention` is.
    """

    def __init__(
        self,
        size: int,
        options: LayerOptions,
        key_size: int | None = None,
        key_norm: bool = True,
        normed: bool = True,
        kind: Callable[..., MultiHeadAttention] = MultiHeadAttention,
    ) -> None:
        super().__init__()
        self.attention = kind(size, options, key_size=key_size)
        self.residual = options.sublayer(size)
        if not normed:
            if options.norm_place != "pre":
                raise WorkbenchError("attention_norm: false removes the norm before attention: add norm_place: pre")
            self.residual.norm = nn.Identity()
        self.one_kind = key_size is None
        pre = key_norm and not self.one_kind and options.norm_place == "pre"
        self.key_norm = options.norm_of(key_size or size) if pre else None

    @property
    def added(self) -> nn.Module:
        """The linear layer whose result is added to the rows."""
        return self.attention.output

    def forward(
        self,
        rows: Tensor,
        context: Context,
        streams: tuple[str, ...],
        key_rows: Tensor | None = None,
        key_streams: tuple[str, ...] | None = None,
    ) -> Tensor:
        """Rows of `streams` attend to `key_rows` of `key_streams` (default: to themselves), and to those of a KV
        cache."""
        names = (streams, streams if key_streams is None else key_streams)
        keys = context.layout(*names[1])
        if context.keeps("rows"):
            key_rows, keys = context.recall(names[1], rows if key_rows is None else key_rows)
        if key_rows is not None:
            key_rows = self._entered_keys(key_rows)
        layouts = context.layout(*names[0]), keys
        attended = self.attention(self.residual.enter(rows), key_rows, *layouts, context=context, names=names)
        return self.residual.leave(rows, attended)

    def _entered_keys(self, rows: Tensor) -> Tensor:
        if self.one_kind:
            return self.residual.enter(rows)
        return rows if self.key_norm is None else self.key_norm(rows)


class FeedForwardBlock(nn.Module):
    """Feed-forward network with residual and norm."""

    def __init__(self, size: int, options: LayerOptions) -> None:
        super().__init__()
        self.network = FeedForward(size, options.intermediate_size or 4 * size, options.activation, options.bias)
        self.residual = options.sublayer(size)

    @property
    def added(self) -> nn.Module:
        """The linear layer whose result is added to the rows."""
        return self.network.outer

    def forward(self, rows: Tensor) -> Tensor:
        return self.residual.leave(rows, self.network(self.residual.enter(rows)))
