"""What all Transformer layers of the core have in common: their options and their two kinds of sublayer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import ComponentName, ComponentSpec, CountOrZero, Dropout, Epsilon, Positive, Size
from workbench.models.blocks import (
    Activation,
    FeedForward,
    MultiHeadAttention,
    NormKind,
    NormPlace,
    Sublayer,
    make_norm,
)
from workbench.models.context import Context


class LayerOptions(TypedDict, total=False):
    """The options that every Transformer layer takes in a recipe next to its activation; `Options` says what they are
    by default.

    `intermediate_size` is 4 x the hidden size by default; `norm`: layer, rms, unbiased; `norm_place`: post (BERT) or
    pre; `rotary`: base of rotary positions; `score_bias`: a part that adds to the scores of attention (buckets);
    `window`: how many rows away a row may be to be seen; `scale`: of the scores, by default 1 / sqrt(head size);
    `bias`: of linear maps and norms; `attention_bias`: of the linear maps of attention, by default as `bias`;
    `inner_size`: heads x head size of the attention, by default the hidden size (ViLBERT: 1024; T5's 11B: 16384).
    """

    intermediate_size: Size | None
    dropout: Dropout
    attention_dropout: Dropout
    norm: NormKind
    norm_place: NormPlace
    norm_eps: Epsilon
    rotary: Positive | None
    score_bias: ComponentSpec | ComponentName | None
    window: CountOrZero | None
    scale: Positive | None
    bias: bool
    attention_bias: bool | None
    inner_size: Size | None


class BlockOptions(LayerOptions, total=False):
    """These with `activation`: gelu, gelu_tanh, quick_gelu, relu, tanh, or gated: swiglu, geglu, geglu_tanh."""

    activation: Activation


@dataclass(frozen=True)
class Options:
    """Options of a Transformer block; the defaults are BERT's (arXiv:1810.04805)."""

    num_heads: int
    intermediate_size: int | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.1
    activation: Activation = "gelu"
    norm: NormKind = "layer"
    norm_place: NormPlace = "post"
    norm_eps: float = 1e-12
    rotary: float | None = None
    score_bias: ComponentSpec | ComponentName | None = None
    window: int | None = None
    scale: float | None = None
    bias: bool = True
    attention_bias: bool | None = None
    inner_size: int | None = None

    def norm_of(self, size: int) -> nn.Module:
        return make_norm(self.norm, size, self.norm_eps, self.bias)

    def sublayer(self, size: int) -> Sublayer:
        return Sublayer(self.norm_of(size), dropout=self.dropout, norm_place=self.norm_place)


class AttentionBlock(nn.Module):
    """Attention from one set of rows to another (or itself) with residual and norm.

    `normed`: whether there is a norm at all, which only pre-norm layers do without;
    `key_norm`: in pre-norm layers, whether another stream's rows are normed before they are read;
    `kind`: the attention, made as `MultiHeadAttention` is.
    """

    def __init__(
        self,
        size: int,
        options: Options,
        key_size: int | None = None,
        key_norm: bool = True,
        normed: bool = True,
        kind: Callable[..., MultiHeadAttention] = MultiHeadAttention,
    ) -> None:
        super().__init__()
        self.attention = kind(
            size,
            options.num_heads,
            key_size=key_size,
            inner_size=options.inner_size,
            dropout=options.attention_dropout,
            rotary=options.rotary,
            score_bias=options.score_bias,
            window=options.window,
            scale=options.scale,
            bias=options.bias if options.attention_bias is None else options.attention_bias,
        )
        self.residual = options.sublayer(size)
        if not normed:
            if options.norm_place != "pre":
                raise WorkbenchError("attention_norm: false leaves out a norm that stands before: add norm_place: pre")
            self.residual.norm = nn.Identity()
        self.one_kind = key_size is None
        pre = key_norm and not self.one_kind and options.norm_place == "pre"
        self.key_norm = options.norm_of(key_size or size) if pre else None

    @property
    def added(self) -> nn.Module:
        """The map whose result is added to the rows."""
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

    def __init__(self, size: int, options: Options) -> None:
        super().__init__()
        self.network = FeedForward(size, options.intermediate_size or 4 * size, options.activation, options.bias)
        self.residual = options.sublayer(size)

    @property
    def added(self) -> nn.Module:
        """The map whose result is added to the rows."""
        return self.network.outer

    def forward(self, rows: Tensor) -> Tensor:
        return self.residual.leave(rows, self.network(self.residual.enter(rows)))
