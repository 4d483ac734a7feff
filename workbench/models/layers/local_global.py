"""Longformer's layer (Beltagy et al., arXiv:2004.05150, section 3.1): a window, and rows with global attention whose
projections are their own.

    local rows     softmax(Q_s K_s^T) V_s  over the window and the global rows
    global rows    softmax(Q_g K_g^T) V_g  over all rows

The transform `everywhere` marks the global rows. A batch without any is that of the layer `self`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import torch
from torch import Tensor

from workbench.models.attention.global_rows import global_rows
from workbench.models.attention.request import Result
from workbench.models.blocks import LayerOptions, MultiHeadAttention
from workbench.models.compilation import uncompiled
from workbench.models.context import Context
from workbench.models.layers.self import SelfLayer
from workbench.models.layout import Layout
from workbench.models.tensor_cut import TensorCuts

Names = tuple[tuple[str, ...], tuple[str, ...]]


class GlobalAttention(MultiHeadAttention):
    """Attention of the rows that see all others: projections whose sums of values another attention's map reads."""

    def __init__(self, hidden_size: int, options: LayerOptions) -> None:
        super().__init__(hidden_size, replace(options, window=None))
        del self.output

    def tensor_cuts(self) -> TensorCuts:
        return replace(super().tensor_cuts(), rows={})

    def project(self, heads: tuple[Tensor, Tensor, Tensor], context: Context, names: Names) -> None:
        """Nothing: the projections that a layer keeps are those of all rows."""


class LocalGlobalAttention(MultiHeadAttention):
    """Attention whose rows that are `everywhere` have projections, and a score bias, of their own (`everywhere`)."""

    def __init__(self, hidden_size: int, options: LayerOptions, *, key_size: int | None = None) -> None:
        super().__init__(hidden_size, options, key_size=key_size)
        self.everywhere = GlobalAttention(hidden_size, options)

    def attended(
        self,
        query_rows: Tensor,
        key_rows: Tensor | None,
        queries: Layout,
        keys: Layout,
        context: Context,
        names: Names,
    ) -> Result:
        local = super().attended(query_rows, key_rows, queries, keys, context, names)
        if "everywhere" not in queries.integers and not context.keeps("keys"):
            return local
        return self._with_global_rows(local, query_rows, key_rows, queries, keys, context, names)

    @uncompiled
    def _with_global_rows(
        self,
        local: Result,
        query_rows: Tensor,
        key_rows: Tensor | None,
        queries: Layout,
        keys: Layout,
        context: Context,
        names: Names,
    ) -> Result:
        """The result with that of the global rows; a KV cache keeps their keys also where a batch has none of them."""
        found, read = global_rows(queries), query_rows if key_rows is None else key_rows
        chosen = query_rows.index_select(0, found.rows)
        own, own_weights = self.everywhere.attended(chosen, read, found.layout, keys, context, names)
        out, weights = local
        if weights is not None and own_weights is not None:
            places = found.layout.index.split(found.layout.lengths)
            weights = [w.index_copy(1, at, new) for w, at, new in zip(weights, places, own_weights, strict=True)]
        return out.index_copy(0, found.rows, own.to(out.dtype)), weights

    def fill_in(self, loaded: Collection[str]) -> None:
        """Global projections that no weights were loaded for begin as the local ones (the paper, section 5)."""
        own = {name.partition(".")[2] for name in loaded if name.startswith("everywhere.")}
        with torch.no_grad():
            for name, parameter in self.everywhere.named_parameters():
                if name in loaded and name not in own:
                    parameter.copy_(self.get_parameter(name))


class LocalGlobalLayer(SelfLayer):
    """Transformer layer of Longformer (Beltagy et al., arXiv:2004.05150, section 3.1): that of `self` with a `window`,
    where the rows that the transform `everywhere` marks have projections of their own as queries, and for the keys and
    values that they read. Other streams pass through.

    Options as for `self`.
    """

    kind = LocalGlobalAttention
