"""The two kinds of sublayer that all Transformer layers of the core have in common: attention and feed-forward."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.models.blocks import FeedForward, LayerOptions, MultiHeadAttention
from workbench.models.context import Context


class AttentionBlock(nn.Module):
    """Attention from one set of rows to another (or itself) with residual and norm.

    `normed`: whether there is a norm at all, which only pre-norm layers do without;
    `key_norm`: in pre-norm layers, whether another stream's rows are normed before they are read;
    `kind`: the attention, made as `MultiHeadAttention` is.
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

    def __init__(self, size: int, options: LayerOptions) -> None:
        super().__init__()
        self.network = FeedForward(size, options.intermediate_size or 4 * size, options.activation, options.bias)
        self.residual = options.sublayer(size)

    @property
    def added(self) -> nn.Module:
        """The map whose result is added to the rows."""
        return self.network.outer

    def forward(self, rows: Tensor) -> Tensor:
        return self.residual.leave(rows, self.network(self.residual.enter(rows)))
