"""Transformer layer whose attention takes linear time: the Linear Transformer (Katharopoulos et al., arXiv:2006.16236)
and Performer (Choromanski et al., arXiv:2009.14794)."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Heads, Size, Word
from workbench.models.attention.feature_maps import elu_features, favor_features, linear_attention, orthogonal_rows
from workbench.models.attention.request import Result, for_each_query
from workbench.models.attention.text_chunks import TextChunks, text_chunks
from workbench.models.blocks import LayerOptions, MultiHeadAttention
from workbench.models.compilation import uncompiled
from workbench.models.context import Context
from workbench.models.layers.self import SelfLayer
from workbench.models.layout import Layout

FeatureMap = Literal["elu", "favor"]


class LinearAttention(MultiHeadAttention):
    """Attention with a feature map in the place of exp; the random features of `favor` are a buffer."""

    projection: Tensor

    def __init__(
        self,
        hidden_size: int,
        options: LayerOptions,
        *,
        key_size: int | None = None,
        features: FeatureMap = "elu",
        num_features: int = 256,
    ) -> None:
        super().__init__(hidden_size, options, key_size=key_size)
        self.favor = features == "favor"
        if self.favor:
            self.register_buffer("projection", orthogonal_rows(num_features, self.head_size))

    def attended(
        self,
        query_rows: Tensor,
        key_rows: Tensor | None,
        queries: Layout,
        keys: Layout,
        context: Context,
        names: tuple[tuple[str, ...], tuple[str, ...]],
    ) -> Result:
        query_rows = self.entered(query_rows)
        q, k, v = self.projected(query_rows, None if key_rows is None else self.entered(key_rows))
        q, k = self.placed(self.query_norm(q), queries), self.placed(self.key_norm(k), keys)
        if context.keeps("keys"):
            known, keys = context.recall(names[1], torch.stack([k.to(v.dtype), v], 1))
            k, v = known.unbind(1)
        check_unadapted(self, "linear attention")
        return self._computed(q, k, v, queries, keys), None

    @uncompiled
    def _computed(self, q: Tensor, k: Tensor, v: Tensor, queries: Layout, keys: Layout) -> Tensor:
        """The means of values [rows_q, heads, head_size], computed in float32; queries are rows of the keys' layout,
        which may have earlier ones before them."""
        if not len(q):
            return q.new_zeros(q.shape, dtype=v.dtype)
        chunks = text_chunks(keys, "linear attention")
        own = None if queries is keys else keys.offsets[:-1][queries.sequence_ids] + queries.index
        whole = q if own is None else q.new_zeros(len(k), *q.shape[1:]).index_copy(0, own, q)
        k, each_v = (for_each_query(part, q.shape[1], 1) for part in (k, v))
        with torch.autocast(q.device.type, enabled=False):
            grids = [chunks.cut(keys.contiguous(part).float()) for part in (whole, k, each_v)]
            out = chunks.joined(self._means(grids[0], grids[1], grids[2], chunks))
        return keys.restored(out)[slice(None) if own is None else own].to(v.dtype)

    def _means(self, q: Tensor, k: Tensor, v: Tensor, chunks: TextChunks) -> Tensor:
        if not self.favor:
            phi_k = elu_features(k) * chunks.valid[:, :, None, None]
            return linear_attention(elu_features(q), phi_k, v, chunks)
        phi_q, phi_k = (favor_features(x, self.projection.float(), chunks, x is q) for x in (q, k))
        return linear_attention(phi_q, phi_k, v, chunks)


class LinearLayer(SelfLayer):
    """Transformer layer with attention in linear time: the Linear Transformer's elu(x) + 1 (Katharopoulos et al.,
    arXiv:2006.16236), or Performer's positive random features of softmax (Choromanski et al., arXiv:2009.14794). Rows
    see all of their text, or those up to themselves. Other streams pass through.

    Args:
        features: `elu`, or `favor` (FAVOR+), whose mean over draws is softmax attention.
        num_features: of `favor`, m random features of each head, orthogonal in blocks.
        options: as for `self`, without those of scores.

    Raises:
        WorkbenchError: an option of scores, which this attention does not compute. In a forward: rows hide from others,
            or are read in another order than from left to right.
    """

    def __init__(
        self,
        stream: Word,
        sizes: dict[str, int],
        num_heads: Heads,
        features: FeatureMap = "elu",
        num_features: Size = 256,
        **options: Annotated[Any, LayerOptions],
    ) -> None:
        refuse_scores(options, "linear attention", ("score_bias", "window", "scale", "attention_dropout"))
        self.kind = partial(LinearAttention, features=features, num_features=num_features)
        super().__init__(stream, sizes, num_heads, **options)


def refuse_scores(options: dict[str, Any], what: str, names: tuple[str, ...]) -> None:
    """Refuse the options of scores that an attention does not have.

    Raises:
        WorkbenchError: one of them is set.
    """
    if given := [f"{name} = {options[name]}" for name in names if options.get(name)]:
        raise WorkbenchError(f"{what} has no scores for {', '.join(given)}: leave it out")


def check_unadapted(attention: MultiHeadAttention, what: str) -> None:
    """
    Raises:
        WorkbenchError: an adapter puts keys before those of each sequence, for which this attention has no place.
    """
    if attention.seen.adapted:
        raise WorkbenchError(f"{what} reads no keys of an adapter (prefix); choose another adapter, such as lora")


def check_alone(attention: MultiHeadAttention, queries: Layout, keys: Layout, context: Context, what: str) -> None:
    """Check that rows attend to the rows of their own texts alone.

    Raises:
        WorkbenchError: there is a KV cache or a memory, or an adapter adds keys.
    """
    if queries is not keys or context.keeps("keys"):
        raise WorkbenchError(f"{what} reads whole texts, without a KV cache and a memory; use the layer self")
    check_unadapted(attention, what)
