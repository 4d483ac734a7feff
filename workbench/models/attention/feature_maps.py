"""Attention in linear time: a kernel of feature maps in the place of exp(q . k).

    out_i = phi(q_i) (sum_j phi(k_j)^T v_j) / phi(q_i) (sum_j phi(k_j)^T)

over the rows j that i sees: all of its text, or those up to i (Katharopoulos et al., arXiv:2006.16236, equations 5 and
9). Chunks of rows are multiplied at once. In the causal form a chunk reads the sum over those before it, and its own
rows by their products.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from workbench.models.attention.text_chunks import TextChunks

STABLE = 1e-6


def elu_features(rows: Tensor) -> Tensor:
    """elu(x) + 1 (arXiv:2006.16236, equation 7), positive."""
    return F.elu(rows) + 1


def orthogonal_rows(count: int, size: int) -> Tensor:
    """Random rows [count, size] that are orthogonal in blocks of `size`, each as long as one of N(0, 1) (Choromanski et
    al., arXiv:2009.14794, section 2.4)."""
    blocks = [torch.linalg.qr(torch.randn(size, size)).Q.T for _ in range(-(-count // size))]
    return torch.cat(blocks)[:count] * torch.randn(count, size).norm(dim=1, keepdim=True)


def favor_features(grid: Tensor, projection: Tensor, chunks: TextChunks, of_queries: bool) -> Tensor:
    """FAVOR+'s positive random features of softmax (arXiv:2009.14794, lemma 1 and section 2.3): exp(w . x - |x|^2 / 2)
    with x = q or k over the fourth root of its size.

    Args:
        grid: chunks of queries or keys [chunks, rows, heads, size].
        projection: w [features, size].
        of_queries: whether the largest exponent is taken off by row (or by text, as of keys). It cancels out.
    """
    scaled = grid * grid.shape[-1] ** -0.25
    exponents = scaled @ projection.T - scaled.square().sum(-1, keepdim=True) / 2
    with torch.no_grad():
        if of_queries:
            most = exponents.amax(-1, keepdim=True)
        else:
            real = exponents.masked_fill(~chunks.valid[:, :, None, None], -torch.inf).amax((1, 3))
            by_text = real.new_full((len(chunks.lengths), real.shape[1]), -torch.inf)
            texts = chunks.texts[:, None].expand_as(real)
            most = by_text.scatter_reduce(0, texts, real, "amax")[chunks.texts][:, None, :, None]
    features = torch.exp(exponents - most) + STABLE
    return features * chunks.valid[:, :, None, None] * len(projection) ** -0.5


def linear_attention(q: Tensor, k: Tensor, v: Tensor, chunks: TextChunks) -> Tensor:
    """Features of queries and keys [chunks, rows, heads, features] and values [chunks, rows, heads, size], those of
    keys 0 at padding -> the weighted means of values [chunks, rows, heads, size]."""
    counted = torch.cat([v, v.new_ones(*v.shape[:-1], 1)], -1)
    sums = torch.einsum("ckhf,ckhd->chfd", k, counted)
    if chunks.causal:
        scores = torch.einsum("cqhf,ckhf->chqk", q, k).tril()
        out = torch.einsum("chqk,ckhd->cqhd", scores, counted) + torch.einsum(
            "cqhf,chfd->cqhd", q, _before(sums, chunks)
        )
    else:
        out = torch.einsum("cqhf,chfd->cqhd", q, chunks.sums(sums)[chunks.texts])
    return out[..., :-1] / out[..., -1:].masked_fill(~chunks.valid[:, :, None, None], 1.0)


def _before(sums: Tensor, chunks: TextChunks) -> Tensor:
    """The sum over the chunks of a text before each one; in double precision, as that of other texts is taken off."""
    total = sums.double().cumsum(0) - sums
    return (total - total[chunks.first]).to(sums.dtype)
