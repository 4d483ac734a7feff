"""The inputs of a layer besides the hidden states: offsets, visibility integers, links between streams."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import torch
from torch import Tensor

from workbench.models.compilation import uncompiled
from workbench.models.kv_cache import CacheKind, CacheUpdate, KVCache
from workbench.models.layout import CacheLayout, Layout, layout_of
from workbench.sequences.batch import Batch

ROUTES = "expert routes"
"""The name of the tap with the loads of experts; it is no name of a layer `tap`."""


class AttentionRecord(NamedTuple):
    """The weights of an attention call: the number of its layer, the streams of its queries and of its keys, and the
    weights of each sequence [heads, its queries, its keys], the rows of several streams stream after stream."""

    layer: int
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    weights: list[Tensor]


class ProjectionRecord(NamedTuple):
    """The queries, keys and values of an attention call, after rotary positions: the number of its layer, the streams
    of its queries and of its keys, the projections of each sequence [heads, its rows, size], and the factor of their
    products."""

    layer: int
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    q: list[Tensor]
    k: list[Tensor]
    v: list[Tensor]
    scale: float

    def scores(self) -> list[Tensor]:
        """The scaled products of each sequence [heads, its queries, its keys]: the scores before a score bias and
        before rows are hidden from others."""
        return [(q * self.scale) @ k.transpose(-1, -2) for q, k in zip(self.q, self.k, strict=True)]


class Context:
    """The properties of one batch, shared by all layers of a forward, and the states kept for heads and figures.

    Args:
        keep_attention: whether attention weights are kept, or of which layers, by their numbers in the stack.
        keep_projections: the same for queries, keys and values, which every kernel can hand out.
        cache: the cache from which the sequences continue; `updated_cache` is the one after the forward.

    Attributes:
        batch: with a KV cache, also the streams that only the cache has, without rows.
        progress: of the run: 0 at its start, 1 at its end and in evaluation.
        attention: of every attention call of the layers for which it is kept.
        projections: likewise.
        hidden: the streams before the first layer and after each, where they are kept.
        kind: of the layer that runs, for messages.
        taps: the streams at each layer `tap`, by its name, and tensors that other layers pass to heads.
    """

    def __init__(
        self,
        batch: Batch,
        *,
        keep_attention: bool | Collection[int] = False,
        keep_projections: bool | Collection[int] = False,
        keep_hidden: bool = False,
        progress: float = 1.0,
        cache: KVCache | None = None,
    ) -> None:
        self._update = None if cache is None else CacheUpdate(cache, batch)
        self.batch = batch if self._update is None else self._update.batch
        self._layer = self._calls = self._routed = 0
        self.kind = ""
        self.progress = progress
        self._layouts: dict[tuple[str, ...], Layout] = {}
        self._wholes: dict[tuple[str, ...], Layout] = {}
        self._spread: dict[tuple[str, ...], CacheLayout] = {}
        self.keep_attention, self.keep_hidden = keep_attention, keep_hidden
        self.keep_projections = keep_projections
        self.attention: list[AttentionRecord] = []
        self.projections: list[ProjectionRecord] = []
        self.hidden: list[dict[str, Tensor]] = []
        self.taps: dict[str, dict[str, Tensor]] = {}

    def fields(self, stream: str) -> dict[str, Tensor]:
        return self.batch.streams[stream].fields

    @uncompiled
    def layout(self, *streams: str) -> Layout:
        """The layout of the batch's rows of one stream, or of several joined, in the order of `torch.cat`."""
        if streams not in self._layouts:
            parts = [self.batch.streams[name] for name in streams]
            self._layouts[streams] = layout_of(parts, self._places(streams))
        return self._layouts[streams]

    def enter(self, layer: int, kind: str = "") -> None:
        """Begin a layer of the stack, with its kind; the places of a KV cache are counted in it."""
        self._layer, self._calls, self._routed, self.kind = layer, 0, 0, kind

    @uncompiled
    def route(self, load: Tensor) -> None:
        """Keep how the rows of a layer were sent to its experts [2, experts]: the number of rows of each, and the sum
        of their probabilities. A recomputation in the backward keeps nothing more."""
        self.taps.setdefault(ROUTES, {}).setdefault(f"{self._layer}.{self._routed}", load)
        self._routed += 1

    @property
    def looks(self) -> bool:
        """Whether the attention weights of the current layer are kept."""
        return self._among(self.keep_attention)

    @property
    def projects(self) -> bool:
        """Whether the queries, keys and values of the current layer are kept."""
        return self._among(self.keep_projections)

    def _among(self, kept: bool | Collection[int]) -> bool:
        return kept if isinstance(kept, bool) else self._layer in kept

    def project(
        self, names: tuple[tuple[str, ...], tuple[str, ...]], parts: tuple[Tensor, Tensor, Tensor], scale: float
    ) -> None:
        """Keep the queries, keys and values of an attention call of this layer, each [heads, rows, size], with the rows
        of each sequence together."""
        lengths = self.layout(*names[0]).lengths, *[self.layout(*names[1]).lengths] * 2
        q, k, v = (list(part.split(sizes, 1)) for part, sizes in zip(parts, lengths, strict=True))
        self.projections.append(ProjectionRecord(self._layer, *names, q, k, v, scale))

    def look(self, names: tuple[tuple[str, ...], tuple[str, ...]], weights: list[Tensor]) -> None:
        """Keep the weights of an attention call of this layer, whose queries and keys are of these streams."""
        self.attention.append(AttentionRecord(self._layer, *names, weights))

    def keeps(self, what: CacheKind) -> bool:
        """Whether there is a KV cache that keeps the rows, or the keys, that attention reads."""
        return self._update is not None and self._update.cache.keeps == what

    @uncompiled
    def recall(self, streams: tuple[str, ...], rows: Tensor, apart: bool = False) -> tuple[Tensor, Layout]:
        """The rows of streams that an attention call reads: the cache's rows and those of the batch, as one layout.

        Each attention call calls it once, where `keeps` is true, with the values of the batch's rows [rows, ...] to be
        kept, in the order of `layout`. With `apart` the rows may be returned as they are stored (a layout
        `CacheLayout`).
        """
        assert self._update is not None
        place = f"{self._layer}.{self._calls}"
        self._calls += 1
        room = self._update.room(streams[0]) if apart and len(streams) == 1 else None
        if room is None:
            return self._update.extend(place, streams, rows), self._whole(streams)
        if streams not in self._spread:
            self._spread[streams] = CacheLayout(self._update.apart(streams[0]), room)
        return self._update.extend(place, streams, rows, apart=True), self._spread[streams]

    def reaches_back(self, stream: str) -> bool:
        """Whether a KV cache has rows of a stream before those of the batch."""
        return self._update is not None and self._update.reaches_back(stream)

    @uncompiled
    def last_recalled(self, stream: str) -> Tensor | None:
        """The value of the last row of each sequence before the batch [sequences, ...], 0 for one without rows; None
        where no row is before it.

        A recurrent layer calls it before `recall`, which keeps the values of the batch's rows for it.
        """
        assert self._update is not None
        return self._update.last(f"{self._layer}.{self._calls}", stream)

    def cast_kept(self, dtype: torch.dtype) -> None:
        """Convert all states kept for heads and figures to this dtype; a KV cache stays as its network reads it."""
        self.attention = [call._replace(weights=[w.to(dtype) for w in call.weights]) for call in self.attention]
        for number, call in enumerate(self.projections):
            q, k, v = ([rows.to(dtype) for rows in part] for part in (call.q, call.k, call.v))
            self.projections[number] = call._replace(q=q, k=k, v=v)
        self.hidden = [_cast(streams, dtype) for streams in self.hidden]
        self.taps = {place: _cast(streams, dtype) for place, streams in self.taps.items()}

    @property
    def updated_cache(self) -> KVCache:
        """The cache with the rows of this batch."""
        assert self._update is not None
        return self._update.updated_cache()

    def _whole(self, streams: tuple[str, ...]) -> Layout:
        assert self._update is not None
        if not any(self.reaches_back(name) for name in streams):
            return self.layout(*streams)  # the same object, so that kernels recognise it
        if streams not in self._wholes:
            self._wholes[streams] = layout_of([self._update.whole(name) for name in streams])
        return self._wholes[streams]

    def _places(self, streams: tuple[str, ...]) -> Tensor | None:
        """The places of the batch's rows among all, in the order of `torch.cat`; None where none are before them."""
        update = self._update
        if update is None or not any(update.reaches_back(name) for name in streams):
            return None
        if len(streams) == 1:
            return update.places(streams[0])
        whole = self._whole(streams)
        parts = whole.restored(whole.index).split([stream.rows for stream in whole.streams])
        return torch.cat([part[update.new_rows(name)] for part, name in zip(parts, streams, strict=True)])


def _cast(streams: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """The streams, with floating-point values in this dtype."""
    return {name: rows.to(dtype) if rows.is_floating_point() else rows for name, rows in streams.items()}
