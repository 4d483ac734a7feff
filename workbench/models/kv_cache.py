"""A KV cache: the rows that were read before those of a batch, so that attention reads them as one sequence.

Every sequence of a batch continues where its own cache ended; caches may be of different lengths, and empty. Cached
values are stored by place in the stack (the number of the layer, and of the attention call in it), so that layers that
share their weights have caches of their own. Two kinds of values can be kept:

    keys   the keys and values of attention. They need not be recomputed as long as the weights stay: this is the cache
           of generation, and of an encoder's states that a decoder reads at every step.
    rows   the input rows of attention. Keys and values are computed from them with the current weights, so that the
           projections (and a norm before them) learn from remembered rows as they do from the rows of the batch:
           Transformer-XL's memory (arXiv:1901.02860, section 3.2), [SG(h_past) ; h] W_k and W_v.

No gradient goes into a KV cache. Its streams have the integer fields of their rows, so that visibility, positions and
score biases are those of one long sequence; no kernel knows of caches.

Without gradients, the rows of each sequence and their fields are stored apart: each sequence has room for the same
number of rows, and its own are the first. New rows are written behind them, and none is moved or copied. Attention
reads the storage as a grid [sequences, room], so that a step of generation costs the keys and values of its own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Literal

import torch
from torch import Tensor

from workbench.models.layout import interleave, row_order, slots
from workbench.sequences.batch import Batch, Stream
from workbench.sequences.transfer import on_device

CacheKind = Literal["keys", "rows"]
CachedRows = dict[str, dict[str, Tensor]]


@dataclass
class KVCache:
    """The rows that were read so far.

    Attributes:
        keeps: `keys` or `rows`.
        streams: the rows that were read, by stream: their integer fields [rows], `position_ids` among them.
        kept: by place and stream, the values of these rows: rows [rows, width], or keys and values
            [rows, 2, heads, size].
        rooms: by stream, the rows for which each sequence has room where they are stored apart: `kept` and the fields
            of the stream then are [sequences * room, ...].
        last: whether nothing has continued from it yet, so that a continuation may write behind its rows.
    """

    keeps: CacheKind
    streams: dict[str, Stream] = field(default_factory=dict)
    kept: CachedRows = field(default_factory=dict)
    rooms: dict[str, int] = field(default_factory=dict)
    last: bool = True

    def pick(self, sequences: Sequence[int | None], leave: Container[str] = ()) -> KVCache:
        """The caches of these sequences, in this order; one may occur several times. None: one without a KV cache.

        `leave` names streams in which these sequences have the same caches as those before them, in the same order.
        """
        if self.rooms and None in sequences:
            return self.together().pick(sequences, leave)
        streams, rows = {}, {}
        for name, stream in self.streams.items():
            if name in leave:
                streams[name] = stream
                continue
            lengths = [0 if number is None else stream.lengths[number] for number in sequences]
            chosen = [number for number in sequences if number is not None]
            room = self.rooms.get(name)
            if room is None:
                streams[name], rows[name] = _picked(stream, stream.numbers_of(chosen), lengths)
                continue
            rows[name] = _slots_at(chosen, room, stream)
            streams[name] = _stream(_all(stream.fields, rows[name]), lengths, stream)
        return KVCache(self.keeps, streams, _each(self.kept, rows), dict(self.rooms))

    def together(self) -> KVCache:
        """The same with the rows of all sequences one after another, and no room between them."""
        rows = {name: _rows_at(self._order(name)) for name in self.rooms}
        streams = {name: self.stream(name) for name in self.streams}
        return KVCache(self.keeps, streams, _each(self.kept, rows))

    def stream(self, name: str) -> Stream:
        """A stream with the rows of all sequences one after another."""
        stream = self.streams[name]
        if name not in self.rooms:
            return stream
        return Stream(_all(stream.fields, _rows_at(self._order(name))), stream.offsets, stream.lengths)

    def _order(self, name: str) -> Tensor:
        stream = self.streams[name]
        return on_device(row_order(stream.lengths, self.rooms[name]), stream.offsets.device)

    def cut(self, length: int) -> KVCache:
        """The last `length` rows of each sequence, in every stream."""
        if self.rooms:
            return self.together().cut(length)
        streams, rows = {}, {}
        for name, stream in self.streams.items():
            lengths = [min(length, n) for n in stream.lengths]
            ends = torch.tensor(stream.lengths).cumsum(0).tolist()
            parts = [torch.arange(end - n, end) for n, end in zip(lengths, ends, strict=True)]
            streams[name], rows[name] = _picked(stream, torch.cat(parts), lengths)
        return KVCache(self.keeps, streams, _each(self.kept, rows))

    def without_last(self, name: str) -> KVCache:
        """All but the last row of each sequence of a stream."""
        stream = self.streams[name]
        fields, kept, lengths = stream.fields, self.kept, [length - 1 for length in stream.lengths]
        if name not in self.rooms:
            stays = torch.ones(stream.rows, dtype=torch.bool, device=stream.offsets.device)
            stays[stream.offsets[1:] - 1] = False
            rows = _rows_at(stays.nonzero()[:, 0])
            fields, kept = _all(fields, rows), _each(kept, {name: rows})
        shorter = _stream(fields, lengths, stream)
        return KVCache(self.keeps, {**self.streams, name: shorter}, kept, dict(self.rooms), self.last)

    def behind(self) -> KVCache:
        """The cache for a next segment whose positions and ranks begin anew: positions end at -1, every rank is -1 and
        nothing is hidden (`until` 0), so that all of it may be seen."""
        if self.rooms:
            return self.together().behind()
        streams = {}
        for name, stream in self.streams.items():
            fields, host = dict(stream.fields), {}
            fields["position_ids"] = _ending_at_minus_one(fields["position_ids"], stream.offsets)
            fields["rank"] = torch.full_like(fields["position_ids"], -1)
            fields["until"] = torch.zeros_like(fields["position_ids"])
            if "position_ids" in stream.host:
                host = {"position_ids": _ending_at_minus_one(stream.host["position_ids"], torch.tensor(stream.starts))}
            streams[name] = Stream(fields, stream.offsets, stream.lengths, host=host)
        return KVCache(self.keeps, streams, self.kept)

    def state_dict(self) -> dict[str, Tensor]:
        """All of it as named tensors: `streams.<stream>.<field>`, `kept.<place>.<stream>`."""
        if self.rooms:
            return self.together().state_dict()
        state = {f"streams.{name}.{f}": t for name, s in self.streams.items() for f, t in s.fields.items()}
        state |= {f"streams.{name}.lengths": torch.tensor(s.lengths) for name, s in self.streams.items()}
        return state | {f"kept.{at}.{name}": t for at, found in self.kept.items() for name, t in found.items()}

    @classmethod
    def of(cls, keeps: CacheKind, state: dict[str, Tensor]) -> KVCache:
        """The cache from a `state_dict`."""
        cache = cls(keeps)
        fields: dict[str, dict[str, Tensor]] = {}
        for path, tensor in state.items():
            kind, _, rest = path.partition(".")
            owner, _, name = rest.rpartition(".")
            (fields if kind == "streams" else cache.kept).setdefault(owner, {})[name] = tensor
        for name, found in fields.items():
            lengths = found.pop("lengths").tolist()
            device = found["position_ids"].device
            cache.streams[name] = Stream(found, torch.tensor([0, *lengths], device=device).cumsum(0), lengths)
        return cache


class CacheUpdate:
    """A KV cache while a network reads a batch that continues from it.

    Attributes:
        batch: the batch with the streams that only the cache has, without rows; rows without positions have those that
            follow the cache's.
    """

    def __init__(self, cache: KVCache, batch: Batch) -> None:
        self._spreads = cache.keeps == "keys" and not torch.is_grad_enabled()
        cache = cache if self._spreads or not cache.rooms else cache.together()
        self.cache = cache
        self._writes: bool | None = None
        self._shelves: dict[str, CacheSlots] = {}
        self._apart: dict[str, Stream] = {}
        streams = {name: replace(s, links={}) for name, s in batch.streams.items()}
        for name, stream in cache.streams.items():
            if name not in streams:
                none = [0] * len(stream.lengths)
                streams[name] = _stream({f: values[:0] for f, values in stream.fields.items()}, none, stream)
        self.batch = Batch({n: _numbered(s, n, cache) for n, s in streams.items()}, batch.targets, batch.keys)
        self._whole: dict[str, tuple[Stream, Tensor]] = {}
        self._kept: CachedRows = {}

    def reaches_back(self, stream: str) -> bool:
        """Whether there are rows of a stream in the cache."""
        return stream in self.cache.streams and self.cache.streams[stream].rows > 0

    def whole(self, stream: str) -> Stream:
        """The rows of the cache and of the batch, each sequence's together."""
        return self._joined(stream)[0]

    def new_rows(self, stream: str) -> Tensor:
        """The rows of the whole that are the batch's, in the batch's order [rows of the batch]."""
        order = self._joined(stream)[1]
        before = self.cache.streams[stream].rows if stream in self.cache.streams else 0
        return torch.argsort(order)[before:]

    def places(self, stream: str) -> Tensor:
        """The place of each row of the batch in its sequence [rows of the batch]."""
        new, old = self.batch.streams[stream], self.cache.streams.get(stream)
        first = [0] * len(new.lengths) if old is None else old.lengths
        return on_device(slots(range(len(new.lengths)), new.lengths, 0, first), new.offsets.device)

    def room(self, stream: str) -> int | None:
        """The rows for which a sequence of a stream has room; None where sequences are consecutive."""
        return self._shelf(stream).room if self._spreads and self.reaches_back(stream) else None

    def apart(self, stream: str) -> Stream:
        """The rows of the cache and of the batch as they are stored, of a stream that has `room`."""
        if stream not in self._apart:
            shelf, new = self._shelf(stream), self.batch.streams[stream]
            old = self.cache.streams.get(stream) or _stream({}, [0] * len(new.lengths), new)
            fields = {
                f: shelf.put(_field(new, f), old.fields.get(f), self._may_write()) for f in _integer_fields(old, new)
            }
            lengths = [a + b for a, b in zip(old.lengths, new.lengths, strict=True)]
            self._apart[stream] = Stream(fields, old.offsets + new.offsets, lengths)
        return self._apart[stream]

    def extend(self, place: str, streams: tuple[str, ...], rows: Tensor, apart: bool = False) -> Tensor:
        """Add the batch's rows of streams at a place, in the order of `torch.cat` -> all rows of these streams.

        They are kept from now on. `apart`: of a single stream that has `room`, the rows as they are stored.
        """
        parts = rows.split([self.batch.streams[name].rows for name in streams])
        wholes = []
        for name, new in zip(streams, parts, strict=True):
            if self._spreads:
                shelf, before = self._shelf(name), self.cache.kept.get(place, {}).get(name)
                grid = shelf.put(new.detach(), before, self._may_write())
                self._kept.setdefault(place, {})[name] = grid
                if before is not None:
                    new = grid if apart else grid[shelf.order]
                wholes.append(new)
                continue
            if self.reaches_back(name):
                before = self.cache.kept[place][name].to(new.dtype)
                new = torch.cat([before, new])[self._joined(name)[1]] if len(new) else before
            wholes.append(new)
            self._kept.setdefault(place, {})[name] = new.detach()
        return torch.cat(wholes) if len(wholes) > 1 else wholes[0]

    def last(self, place: str, stream: str) -> Tensor | None:
        """The value at a place of the last row of each sequence in the cache [sequences, ...], 0 for one without rows;
        None where there is nothing."""
        before = self.cache.kept.get(place, {}).get(stream)
        if before is None or not len(before):
            return None
        old, room = self.cache.streams[stream], self.cache.rooms.get(stream)
        starts = old.starts[:-1] if room is None else [room * number for number in range(len(old.lengths))]
        places = torch.tensor([start + max(n, 1) - 1 for start, n in zip(starts, old.lengths, strict=True)])
        ends = on_device(places.clamp(max=len(before) - 1), before.device)
        some = on_device(torch.tensor(old.lengths) > 0, before.device)
        return torch.where(some.view(-1, *[1] * (before.ndim - 1)), before[ends], 0)

    def updated_cache(self) -> KVCache:
        """The cache with the rows of the batch, for streams that were attended to."""
        read = {name for found in self._kept.values() for name in found}
        streams = {name: self.apart(name) if self._spreads else self.whole(name) for name in read}
        rooms = {**self.cache.rooms, **{name: shelf.room for name, shelf in self._shelves.items() if name in read}}
        return KVCache(self.cache.keeps, {**self.cache.streams, **streams}, {**self.cache.kept, **self._kept}, rooms)

    def _may_write(self) -> bool:
        """Whether new rows may be written behind the cache's: once, as nothing else continues from it then."""
        if self._writes is None:
            self._writes, self.cache.last = self.cache.last, False
        return self._writes

    def _shelf(self, stream: str) -> CacheSlots:
        if stream not in self._shelves:
            new, old = self.batch.streams[stream], self.cache.streams.get(stream)
            lengths = [0] * len(new.lengths) if old is None else old.lengths
            room = self.cache.rooms.get(stream)
            self._shelves[stream] = CacheSlots(lengths, new.lengths, room, new.offsets.device)
        return self._shelves[stream]

    def _joined(self, stream: str) -> tuple[Stream, Tensor]:
        if stream not in self._whole:
            new = self.batch.streams[stream]
            known = stream in self.cache.streams
            old = self.cache.stream(stream) if known else _stream({}, [0] * len(new.lengths), new)
            if not new.rows:
                self._whole[stream] = old, torch.arange(old.rows, device=new.offsets.device)
                return self._whole[stream]
            numbers = interleave([old, new])
            order = on_device(numbers, new.offsets.device)
            lengths = [a + b for a, b in zip(old.lengths, new.lengths, strict=True)]
            fields = {f: torch.cat([_field(old, f), _field(new, f)])[order] for f in _integer_fields(old, new)}
            host = {}
            if "position_ids" in new.host and (not old.rows or "position_ids" in old.host):
                both = [s.host["position_ids"] for s in (old, new) if s.rows]
                host = {"position_ids": torch.cat(both)[numbers]}
            self._whole[stream] = Stream(fields, old.offsets + new.offsets, lengths, host=host), order
        return self._whole[stream]


def _stream(fields: dict[str, Tensor], lengths: list[int], like: Stream) -> Stream:
    return Stream(fields, on_device([0, *accumulate(lengths)], like.offsets.device), lengths)


def _picked(stream: Stream, numbers: Tensor, lengths: list[int]) -> tuple[Stream, Rows]:
    """Rows of a stream, by their numbers on the host, and the function that selects them."""
    rows = _rows_at(on_device(numbers, stream.offsets.device))
    picked = _stream(_all(stream.fields, rows), lengths, stream)
    picked.host = _all(stream.host, _rows_at(numbers))
    return picked, rows


Rows = Callable[[Tensor], Tensor]


def _rows_at(rows: Tensor) -> Rows:
    """The function that selects these rows of [rows, ...]."""
    return lambda values: values[rows]


def _slots_at(sequences: list[int], room: int, like: Stream) -> Rows:
    """The function that selects the rooms of these sequences of [sequences * room, ...]: whole blocks of memory."""
    chosen = on_device(torch.tensor(sequences, dtype=torch.long), like.offsets.device)
    return lambda values: values.unflatten(0, (-1, room)).index_select(0, chosen).flatten(0, 1)


def _all(fields: dict[str, Tensor], rows: Rows) -> dict[str, Tensor]:
    return {name: rows(values) for name, values in fields.items()}


def _each(kept: CachedRows, rows: dict[str, Rows]) -> CachedRows:
    """The cached values of these rows of each stream; of a stream that is not named, all."""
    return {
        at: {name: rows[name](values) if name in rows else values for name, values in found.items()}
        for at, found in kept.items()
    }


def _integer_fields(old: Stream, new: Stream) -> list[str]:
    """The names of the integer fields of the cache's rows and of the new rows."""
    own = {f for f, t in new.fields.items() if t.shape == (new.rows,) and not t.is_floating_point()}
    return sorted(old.fields.keys() | own)


def _field(stream: Stream, name: str) -> Tensor:
    """A field of the rows, 0 where the stream lacks it, as in layouts."""
    values = stream.fields.get(name)
    return torch.zeros(stream.rows, dtype=torch.long, device=stream.offsets.device) if values is None else values


def _numbered(new: Stream, name: str, cache: KVCache) -> Stream:
    """The stream with positions; where it has none, they continue those of the cache."""
    if "position_ids" in new.fields:
        return new
    device, lengths = new.offsets.device, new.offsets.diff()
    first = torch.zeros_like(lengths)
    if name in cache.streams:
        old = cache.stream(name)
        first = _next_positions(old.fields["position_ids"], old.offsets)
    begins = torch.repeat_interleave(first - new.offsets[:-1], lengths, output_size=new.rows)
    positions = torch.arange(new.rows, device=device) + begins
    return replace(new, fields={**new.fields, "position_ids": positions})


def _next_positions(positions: Tensor, offsets: Tensor) -> Tensor:
    """The position that follows the last row of each sequence [sequences]; 0 where there is none."""
    lengths = offsets.diff()
    if not len(positions):
        return torch.zeros_like(lengths)
    return torch.where(lengths > 0, positions[(offsets[1:] - 1).clamp_min(0)] + 1, 0)


def _ending_at_minus_one(positions: Tensor, offsets: Tensor) -> Tensor:
    """The positions moved so that those of each sequence end at -1 [rows]."""
    following, lengths = _next_positions(positions, offsets), offsets.diff()
    return positions - torch.repeat_interleave(following, lengths, output_size=len(positions))


SPARE_ROWS = 32
"""The additional room: at least this number of rows, and a quarter of the longest sequence."""


class CacheSlots:
    """The places of the rows of a stream and of new rows, the same for every layer.

    Args:
        lengths: rows that each sequence has.
        more: rows that are added to each.
        room: the current room; None where the current rows are consecutive.
    """

    def __init__(self, lengths: list[int], more: list[int], room: int | None, device: torch.device) -> None:
        total = [a + b for a, b in zip(lengths, more, strict=True)]
        need = max(total, default=0)
        self.before = room
        self.room = room if room is not None and need <= room else need + max(SPARE_ROWS, need // 4)
        self.sequences = len(lengths)
        numbers = range(len(lengths))
        self.old = None if room is not None else on_device(slots(numbers, lengths, self.room), device)
        self.new = on_device(slots(numbers, more, self.room, lengths), device) if any(more) else None
        self._total, self._device = total, device
        self._order: Tensor | None = None

    @property
    def order(self) -> Tensor:
        """The places of all rows, one sequence after another."""
        if self._order is None:
            self._order = on_device(row_order(self._total, self.room), self._device)
        return self._order

    def put(self, new: Tensor, before: Tensor | None, writes: bool) -> Tensor:
        """The old rows and the new ones [sequences * room, ...]; `writes`: `before` may change."""
        grid = self._grid(new, before)
        if self.new is None:
            return grid
        if grid is before and not (writes and grid.is_inference() == torch.is_inference_mode_enabled()):
            grid = grid.clone()
        return grid.index_copy_(0, self.new, new)

    def _grid(self, new: Tensor, before: Tensor | None) -> Tensor:
        """The old rows, with the room that is needed now."""
        if before is not None and self.before == self.room and before.dtype == new.dtype:
            return before
        grid = new.new_zeros(self.sequences * self.room, *new.shape[1:])
        if before is None:
            return grid
        if self.before is None:
            assert self.old is not None
            return grid.index_copy_(0, self.old, before.to(new.dtype))
        grid.unflatten(0, (-1, self.room))[:, : self.before] = before.unflatten(0, (-1, self.before))
        return grid
