"""BigBird's block-sparse attention (Zaheer et al., arXiv:2007.14062, section 2 and appendix D): blocks of queries
against the blocks around them, random blocks of their text, and its rows that are `everywhere`.

The keys of each block are gathered, so time and memory grow with the number of rows. Rows that are everywhere attend to
all of their text, with the padded kernel.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from workbench.models.attention.global_rows import global_rows
from workbench.models.attention.padded import GridSide, PaddedGroup, group_attention, padded
from workbench.models.attention.request import Request
from workbench.models.attention.text_chunks import TextChunks, text_chunks
from workbench.models.layout import Layout
from workbench.sequences.transfer import integers_on_device

AROUND = 3  # blocks: the one before, its own, the next one


def sparse_blocks(request: Request, size: int, count: int, seed: int) -> Tensor:
    """Attention of rows among themselves -> [rows, heads, head_size], where a block of `size` rows sees `count` random
    blocks of its text besides those around it. The blocks depend on the seed and the number of blocks of the text."""
    layout = request.queries
    chunks = text_chunks(layout, "attention to random blocks", size)
    key = ("sparse blocks", size, count, seed)
    group = layout.kept(layout, key, lambda: _group(layout, chunks, size, count, seed))
    grids = (
        part.index_select(0, side.index.flatten()).unflatten(0, side.index.shape)
        for part, side in ((request.q, group.queries), (request.k, group.keys), (request.v, group.keys))
    )
    out = layout.restored(chunks.joined(group_attention(request, group, *grids)[0]))
    if "everywhere" not in layout.integers:
        return out
    found = global_rows(layout)
    whole, _ = padded(replace(request, q=request.q.index_select(0, found.rows), queries=found.layout))
    return out.index_copy(0, found.rows, whole.to(out.dtype))


@lru_cache(maxsize=256)
def seen_blocks(blocks: int, count: int, seed: int) -> np.ndarray:
    """The blocks that each block of a text of so many sees [blocks, AROUND + count], -1 where there are no more."""
    numbers = np.random.default_rng((seed, blocks))
    seen = np.full((blocks, AROUND + count), -1)
    for block in range(blocks):
        near = np.arange(max(0, block - 1), min(blocks, block + 2))
        far = numbers.permutation(np.setdiff1d(np.arange(blocks), near))[:count]
        seen[block, : len(near)], seen[block, AROUND : AROUND + len(far)] = near, far
    return seen


def _group(layout: Layout, chunks: TextChunks, size: int, count: int, seed: int) -> PaddedGroup:
    """All blocks of queries with the keys that they see."""
    lengths = np.array(chunks.lengths)
    blocks, starts = -(-lengths // size), np.cumsum(lengths) - lengths
    firsts, texts = np.cumsum(blocks) - blocks, np.repeat(np.arange(len(lengths)), blocks)
    own = [seen_blocks(number, count, seed) for number in blocks.tolist()]
    seen = np.concatenate([np.where(each < 0, -1, each + first) for each, first in zip(own, firsts, strict=True)])
    begins = starts[texts] + (np.arange(len(texts)) - firsts[texts]) * size
    rows = begins[seen][:, :, None] + np.arange(size)
    valid = (seen >= 0)[:, :, None] & (rows < (starts + lengths)[texts][:, None, None])
    marked = _marked(layout, starts)[texts]
    of_marked = firsts[texts][:, None] + (marked - starts[texts][:, None]) // size
    away = (marked >= 0) & ~(of_marked[:, :, None] == seen[:, None, :]).any(-1)
    index = np.concatenate([rows.reshape(len(texts), -1), marked], 1)
    known = np.concatenate([valid.reshape(len(texts), -1), away], 1)
    parts = [torch.from_numpy(part) for part in (np.where(known, index, 0), known.astype(np.int64))]
    key_rows, real = integers_on_device(parts, layout.device)
    return PaddedGroup(_side(layout, chunks, chunks.rows, chunks.valid), _side(layout, chunks, key_rows, real > 0), [])


def _marked(layout: Layout, starts: np.ndarray) -> np.ndarray:
    """The rows of each text that are everywhere, in contiguous order [texts, most of a text], -1 behind the last."""
    if "everywhere" not in layout.integers:
        return np.full((len(starts), 0), -1)
    (stream,) = layout.streams
    rows = np.flatnonzero(stream.known("everywhere").numpy() > 0)
    texts = np.searchsorted(starts, rows, side="right") - 1
    counts = np.bincount(texts, minlength=len(starts))
    found = np.full((len(starts), int(counts.max(initial=0))), -1)
    found[texts, np.arange(len(rows)) - (np.cumsum(counts) - counts)[texts]] = rows
    return found


def _side(layout: Layout, chunks: TextChunks, rows: Tensor, valid: Tensor) -> GridSide:
    """The rows of each block; those of other texts are hidden by their numbers."""
    return GridSide(rows, valid, False, False, layout.index[rows], chunks.texts[:, None].expand_as(rows))
