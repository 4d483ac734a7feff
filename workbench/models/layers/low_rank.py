"""Linformer's layer (Wang et al., arXiv:2006.04768, section 4): attention to a fixed number of sums over a text's rows.

    softmax(Q (E K)^T / sqrt(size)) (F V),   E, F [rank, rows of the text]

The column of a row in E and F is that of its place in the text, so texts may be shorter than the longest one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Heads, Size, Word
from workbench.models.attention.call import attend
from workbench.models.attention.request import Result
from workbench.models.attention.text_chunks import TextChunks, text_chunks
from workbench.models.blocks import LayerOptions, MultiHeadAttention
from workbench.models.compilation import uncompiled
from workbench.models.context import Context
from workbench.models.layers.linear import check_alone, refuse_scores
from workbench.models.layers.self import SelfLayer
from workbench.models.layout import Layout
from workbench.models.tensor_cut import TensorCuts
from workbench.sequences.transfer import integers_on_device


class LowRankAttention(MultiHeadAttention):
    """Attention to `rank` sums of keys and of values for each text; all heads share the weights of the sums."""

    def __init__(
        self, hidden_size: int, options: LayerOptions, *, key_size: int | None = None, rank: int, max_positions: int
    ) -> None:
        super().__init__(hidden_size, options, key_size=key_size)
        self.key_map, self.value_map = nn.Embedding(max_positions, rank), nn.Embedding(max_positions, rank)

    def tensor_cuts(self) -> TensorCuts:
        usual = super().tensor_cuts()
        return replace(usual, summed=(*usual.summed, "key_map.weight", "value_map.weight"))

    def attended(
        self,
        query_rows: Tensor,
        key_rows: Tensor | None,
        queries: Layout,
        keys: Layout,
        context: Context,
        names: tuple[tuple[str, ...], tuple[str, ...]],
    ) -> Result:
        check_alone(self, queries, keys, context, "low-rank attention")
        q, k, v = self.projected(self.entered(query_rows))
        q, k = self.placed(self.query_norm(q), queries), self.placed(self.key_norm(k), keys)
        return self._computed(q.to(v.dtype), k.to(v.dtype), v, queries, self._label(context.kind, names)), None

    @uncompiled
    def _computed(self, q: Tensor, k: Tensor, v: Tensor, layout: Layout, label: str) -> Tensor:
        if not len(q):
            return torch.zeros_like(q)
        chunks = text_chunks(layout, "low-rank attention")
        self._check(chunks)
        rank = self.key_map.embedding_dim
        keys = self._sums(self.key_map, layout.contiguous(k), chunks)
        values = self._sums(self.value_map, layout.contiguous(v), chunks)
        texts, sides = layout.kept(layout, ("texts", rank), lambda: _layouts(chunks, rank, layout.device))
        out, _ = attend(
            *(layout.contiguous(q), keys, values, texts, sides),
            dropout=self.dropout if self.training else 0.0,
            scale=self.scale,
            label=label,
            heads=self.heads,
        )
        return layout.restored(out)

    def _check(self, chunks: TextChunks) -> None:
        if chunks.causal and max(chunks.lengths) > 1:
            raise WorkbenchError("low-rank attention reads whole texts, and these are causal; use the layer linear")
        if max(chunks.lengths) > self.key_map.num_embeddings:
            raise WorkbenchError(
                f"a text has {max(chunks.lengths)} rows, and low-rank attention has weights for "
                f"{self.key_map.num_embeddings} (max_positions); set it to the longest text"
            )

    def _sums(self, table: nn.Embedding, rows: Tensor, chunks: TextChunks) -> Tensor:
        """Keys or values [rows, heads, size] -> the sums of each text [texts * rank, heads, size]."""
        weights = table(chunks.places.clamp_max(table.num_embeddings - 1)).to(rows.dtype)
        return chunks.sums(torch.einsum("csr,cshd->crhd", weights, chunks.cut(rows))).flatten(0, 1)


def _layouts(chunks: TextChunks, rank: int, device: torch.device) -> tuple[Layout, Layout]:
    """The texts as sequences of their own, and the sums of each."""
    sums = [rank] * len(chunks.lengths)
    offsets = integers_on_device([torch.tensor([0, *accumulate(n)]) for n in (chunks.lengths, sums)], device)
    return Layout(chunks.lengths, offsets[0], {}), Layout(sums, offsets[1], {})


class LowRankLayer(SelfLayer):
    """Transformer layer of Linformer (Wang et al., arXiv:2006.04768): each row attends to `rank` weighted sums of the
    rows of its text, in linear time. Texts are read in both directions. Other streams pass through.

    Args:
        rank: the paper's k, the number of sums.
        max_positions: of the longest text, in rows.
        options: as for `self`, without a score bias and a window.

    Raises:
        WorkbenchError: a score bias or a window. In a forward: a longer text, a causal one, or a KV cache.
    """

    def __init__(
        self,
        stream: Word,
        sizes: dict[str, int],
        num_heads: Heads,
        max_positions: Size,
        rank: Size = 128,
        **options: Annotated[Any, LayerOptions],
    ) -> None:
        refuse_scores(options, "low-rank attention", ("score_bias", "window"))
        self.kind = partial(LowRankAttention, rank=rank, max_positions=max_positions)
        super().__init__(stream, sizes, num_heads, **options)
