"""Building blocks of layers: options, activations, feed-forward, multi-head attention over rows, and the two
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
    RotaryBase,
    Size,
)
from workbench.models.attention.call import attend
from workbench.models.attention.key_values import KeyValueHook, KeyValues
from workbench.models.attention.request import Result, for_each_query
from workbench.models.attention.score_bias import ScoreBias
from workbench.models.context import Context
from workbench.models.dropout import dropout
from workbench.models.feed_forward import Activation, ExpertOptions, Experts, FeedForward
from workbench.models.layout import Layout
from workbench.models.norms import NormKind, make_norm
from workbench.models.rotary import Rotary, RotaryScaling, rotate
from workbench.models.tensor_cut import Blocks, CutModule, HeadRange, TensorCuts

NormPlace = Literal["post", "pre"]


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
        kv_heads: heads of keys and values, each of which num_heads / kv_heads queries read (arXiv:2305.13245); by
            default num_heads.
        intermediate_size: of the feed-forward network, by default 4 x the hidden size.
        dropout: of the result of each sublayer.
        attention_dropout: of the attention weights.
        norm: layer, rms (which never has a bias), unbiased (K-BERT's) or affine (MobileBERT's).
        norm_place: behind each residual connection (post, as in BERT) or at the start of each sublayer (pre).
        norm_eps: epsilon of the norms.
        rotary: base of rotary positions (arXiv:2104.09864).
        rotary_scaling: of their frequencies, for texts longer than those of pretraining.
        qk_norm: whether an RMSNorm of each head's size is applied to queries and to keys, before rotary positions
            (Qwen3).
        score_bias: a component that adds to the scores of attention (buckets).
        window: the greatest distance in rows at which a row is seen.
        scale: of the scores, by default 1 / sqrt(head size).
        bias: of linear maps and norms.
        attention_bias: of the linear maps of attention, by default as `bias`.
        qkv_bias: of those of queries, keys and values alone, by default as `attention_bias` (Qwen2: true).
        inner_size: heads x head size of the attention, by default the hidden size (ViLBERT: 1024; T5's 11B: 16384).
        activation: gelu, gelu_tanh, quick_gelu, relu, tanh, or gated: swiglu, geglu, geglu_tanh.
        experts: feed-forward networks of which each row is sent to a few; null for a single one.
    """

    num_heads: Heads
    kv_heads: Heads | None = None
    intermediate_size: Size | None = None
    dropout: Dropout = 0.1
    attention_dropout: Dropout = 0.1
    norm: NormKind = "layer"
    norm_place: NormPlace = "post"
    norm_eps: Epsilon = 1e-12
    rotary: RotaryBase | None = None
    rotary_scaling: RotaryScaling | None = None
    qk_norm: bool = False
    score_bias: ComponentSpec | ComponentName | None = None
    window: CountOrZero | None = None
    scale: Positive | None = None
    bias: bool = True
    attention_bias: bool | None = None
    qkv_bias: bool | None = None
    inner_size: Size | None = None
    activation: Activation = "gelu"
    experts: ExpertOptions | None = None

    def __post_init__(self) -> None:
        if self.kv_heads is not None and self.num_heads % self.kv_heads:
            raise WorkbenchError(
                f"kv_heads = {self.kv_heads} does not divide num_heads = {self.num_heads}; choose a number that does"
            )
        if self.rotary_scaling is not None and self.rotary is None:
            raise WorkbenchError("rotary_scaling scales rotary positions, which this layer lacks; state rotary: BASE")

    @property
    def rotation(self) -> Rotary | None:
        """The rotary positions."""
        return None if self.rotary is None else Rotary(self.rotary, self.rotary_scaling)

    @property
    def biases(self) -> tuple[bool, bool]:
        """Whether queries, keys and values have biases, and whether the attention's output has one."""
        output = self.bias if self.attention_bias is None else self.attention_bias
        return output if self.qkv_bias is None else self.qkv_bias, output

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
        self.num_heads, self.kv_heads = num_heads, options.kv_heads or num_heads
        self.head_size = inner // num_heads
        self.dropout = options.attention_dropout
        self.rotary = options.rotation
        self.window, self.scale = options.window, options.scale
        about = {"num_heads": num_heads, "head_size": self.head_size}
        self.score_bias: ScoreBias | None = None
        if options.score_bias is not None:
            self.score_bias = build("score_bias", options.score_bias, "score_bias", **about)
            self.scale = self.score_bias.scale if self.scale is None else self.scale
        (bias, output_bias), each = options.biases, self.kv_heads * self.head_size
        if key_size is None:
            self.qkv = nn.Linear(hidden_size, inner + 2 * each, bias=bias)
        else:
            self.query = nn.Linear(hidden_size, inner, bias=bias)
            self.key_value = nn.Linear(key_size, 2 * each, bias=bias)
        self.query_norm, self.key_norm = (
            nn.RMSNorm(self.head_size, eps=options.norm_eps) if options.qk_norm else nn.Identity() for _ in range(2)
        )
        self.seen = KeyValueHook(self.kv_heads, self.head_size)
        self.output = nn.Linear(inner, hidden_size, bias=output_bias)
        if self.score_bias is not None:
            self.score_bias.check_attention(self)

    def tensor_cuts(self) -> TensorCuts:
        grouped = self.kv_heads != self.num_heads
        fused = (self.num_heads, self.kv_heads, self.kv_heads) if grouped else 3
        columns: dict[str, Blocks] = {"qkv": fused} if hasattr(self, "qkv") else {"query": 1, "key_value": 2}
        divided = {"num_heads": self.num_heads, **({"kv_heads": self.kv_heads} if grouped else {})}
        norms = (
            f"{place}.{name}"
            for place in ("query_norm", "key_norm")
            for name, _ in self.get_submodule(place).named_parameters()
        )
        return TensorCuts(divided, columns=columns, rows={"output": 1}, summed=tuple(norms))

    def take_part(self, rank: int, ranks: int) -> None:
        count = self.num_heads // ranks
        self.heads = HeadRange(rank * count, count, self.num_heads)
        self.num_heads = count
        self.kv_heads = self.seen.num_heads = self.kv_heads // ranks

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
        out, weights = self.attended(query_rows, key_rows, queries, keys, context, names)
        if weights is not None:
            context.look(names, weights)
        return self.output(out.flatten(1))

    def attended(
        self,
        query_rows: Tensor,
        key_rows: Tensor | None,
        queries: Layout,
        keys: Layout,
        context: Context,
        names: tuple[tuple[str, ...], tuple[str, ...]],
    ) -> Result:
        """The arguments of `forward` -> the sums of values [rows_q, heads, head_size] before the output's map, and the
        weights of each sequence where they are kept: a hook for rows that attend in another way."""
        query_rows = self.entered(query_rows)
        key_rows = None if key_rows is None else self.entered(key_rows)
        q, k, v = self.projected(query_rows, key_rows)
        q, k = self.placed(self.query_norm(q), queries), self.placed(self.key_norm(k), keys)
        q, k = q.to(v.dtype), k.to(v.dtype)  # norms are in float32 under autocast
        if context.projects:
            self.project((queries.contiguous(q), keys.contiguous(k), keys.contiguous(v)), context, names)
        if context.keeps("keys"):
            known, keys = context.recall(names[1], torch.stack([k, v], 1), apart=not self.seen.adapted)
            k, v = known.unbind(1)
        own = keys  # its lengths are read after the call: code is compiled for each list of numbers
        q, (k, v, keys) = self.faced(q, self.seen(KeyValues(k, v, keys)), query_rows, queries, names)
        out, weights = attend(
            *(q, k, v, queries, keys),
            dropout=self.dropout if self.training else 0.0,
            window=self.window,
            score_bias=None if self.score_bias is None else self.score_bias.bound(self, query_rows),
            scale=self.scale,
            need_weights=context.looks,
            label=self._label(context.kind, names),
            heads=self.heads,
        )
        if weights is None:
            return out, None
        read = [w[..., w.shape[-1] - n :] for w, n in zip(weights, own.lengths, strict=True)]
        return out, [self.of_all_ranks(w) for w in read]  # without the keys that an adapter put before the others

    def project(
        self, heads: tuple[Tensor, Tensor, Tensor], context: Context, names: tuple[tuple[str, ...], tuple[str, ...]]
    ) -> None:
        """Keep queries, keys and values [rows, heads, head_size], with the rows of each sequence together."""
        whole = [self.of_all_ranks(part.transpose(0, 1)) for part in heads]
        q_heads, k_heads, v_heads = (for_each_query(part, len(whole[0]), 0) for part in whole)
        scale = self.head_size**-0.5 if self.scale is None else self.scale
        context.project(names, (q_heads, k_heads, v_heads), scale)

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

    def placed(self, heads: Tensor, layout: Layout) -> Tensor:
        """Queries or keys [rows, heads, head_size] with their rotary positions, if the layer has any."""
        return heads if self.rotary is None else rotate(heads, layout.turns(self.head_size, heads.dtype, self.rotary))

    def projected(self, query_rows: Tensor, key_rows: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [rows_q, num_heads, head_size], and keys and values [rows_k, kv_heads, head_size], before norms and
        rotary positions: a hook for attention with other projections. `key_rows` are None where they are the same."""
        inner, each = self.num_heads * self.head_size, self.kv_heads * self.head_size
        if hasattr(self, "qkv") and key_rows is None:
            parts = self.qkv(query_rows).split([inner, each, each], -1)  # at once: its gradient is one concatenation
        elif hasattr(self, "qkv"):
            q_weight, kv_weight = self.qkv.weight.tensor_split([inner])
            q_bias, kv_bias = (None, None) if self.qkv.bias is None else self.qkv.bias.tensor_split([inner])
            q, kv = F.linear(query_rows, q_weight, q_bias), F.linear(key_rows, kv_weight, kv_bias)  # type: ignore[arg-type]
            parts = (q, *kv.chunk(2, -1))
        else:
            parts = (
                self.query(query_rows),
                *self.key_value(query_rows if key_rows is None else key_rows).chunk(2, -1),
            )
        q, k, v = (part.unflatten(-1, (-1, self.head_size)) for part in parts)
        return q, k, v


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
    def added(self) -> tuple[Tensor, ...]:
        """The weights of the map whose result is added to the rows."""
        return (self.attention.output.weight,)

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
        inner = options.intermediate_size or 4 * size
        self.network: FeedForward | Experts
        if options.experts is None:
            self.network = FeedForward(size, inner, options.activation, options.bias)
        else:
            self.network = Experts(size, inner, options.activation, options.experts)
        self.residual = options.sublayer(size)

    @property
    def single(self) -> FeedForward:
        """The network of a block without experts."""
        assert isinstance(self.network, FeedForward)
        return self.network

    @property
    def added(self) -> tuple[Tensor, ...]:
        """The weights of the maps whose results are added to the rows."""
        if isinstance(self.network, FeedForward):
            return (self.network.outer.weight,)
        shared = self.network.shared
        return (self.network.outer,) if shared is None else (self.network.outer, shared.outer.weight)

    def forward(self, rows: Tensor, context: Context) -> Tensor:
        entered = self.residual.enter(rows)
        own = self.network(entered, context) if isinstance(self.network, Experts) else self.network(entered)
        return self.residual.leave(rows, own)
