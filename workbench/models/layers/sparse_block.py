"""BigBird's layer (Zaheer et al., arXiv:2007.14062): the blocks around a row, random blocks, and global rows."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Annotated, Any

from torch import Tensor

from workbench.core.options.bounds import Count, Heads, Seed, Size, Word
from workbench.models.attention.request import Request, Result
from workbench.models.attention.sparse_blocks import sparse_blocks
from workbench.models.blocks import LayerOptions, MultiHeadAttention
from workbench.models.compilation import uncompiled
from workbench.models.context import Context
from workbench.models.dropout import numbers_of_heads
from workbench.models.layers.linear import check_alone, refuse_scores
from workbench.models.layers.self import SelfLayer
from workbench.models.layout import Layout


class SparseBlockAttention(MultiHeadAttention):
    """Attention whose blocks of rows see the blocks around them and random ones; all heads see the same."""

    def __init__(
        self,
        hidden_size: int,
        options: LayerOptions,
        *,
        key_size: int | None = None,
        block_size: int,
        random_blocks: int,
        seed: int,
    ) -> None:
        super().__init__(hidden_size, options, key_size=key_size)
        self.blocks = block_size, random_blocks, seed

    def attended(
        self,
        query_rows: Tensor,
        key_rows: Tensor | None,
        queries: Layout,
        keys: Layout,
        context: Context,
        names: tuple[tuple[str, ...], tuple[str, ...]],
    ) -> Result:
        check_alone(self, queries, keys, context, "attention to random blocks")
        q, k, v = self.projected(self.entered(query_rows))
        q, k = self.placed(self.query_norm(q), queries), self.placed(self.key_norm(k), keys)
        return self._computed(q.to(v.dtype), k.to(v.dtype), v, queries, query_rows), None

    @uncompiled
    def _computed(self, q: Tensor, k: Tensor, v: Tensor, layout: Layout, rows: Tensor) -> Tensor:
        if not len(q):
            return q
        drop = self.dropout if self.training else 0.0
        bias = None if self.score_bias is None else self.score_bias.bound(self, rows)
        request = Request(q, k, v, layout, layout, drop, None, bias, self.scale, heads=self.heads)
        with numbers_of_heads(q.device, self.heads) if self.heads is not None and drop else nullcontext():
            return sparse_blocks(request, *self.blocks)


class SparseBlockLayer(SelfLayer):
    """Transformer layer of BigBird (Zaheer et al., arXiv:2007.14062, section 2): a block of rows sees itself, the block
    on each side, random blocks of its text, and the rows that the transform `everywhere` marks, which see all. Other
    streams pass through.

    Args:
        block_size: rows of a block (the paper: 64).
        random_blocks: for each block (the paper: 3).
        seed: of the random blocks: layers of one seed have the same.
        options: as for `self`, without a window.

    Raises:
        WorkbenchError: a window. In a forward: a KV cache.
    """

    def __init__(
        self,
        stream: Word,
        sizes: dict[str, int],
        num_heads: Heads,
        block_size: Size = 64,
        random_blocks: Count = 3,
        seed: Seed = 0,
        **options: Annotated[Any, LayerOptions],
    ) -> None:
        refuse_scores(options, "attention to random blocks", ("window",))
        self.kind = partial(SparseBlockAttention, block_size=block_size, random_blocks=random_blocks, seed=seed)
        super().__init__(stream, sizes, num_heads, **options)
