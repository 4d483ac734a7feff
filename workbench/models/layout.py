"""The division of the rows of streams into sequences, on which attention, positions and masks depend."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from workbench.core.errors import unknown
from workbench.models.permutation import inverse_of, select
from workbench.models.rotary import Rotary, Turns, turns
from workbench.sequences.batch import Stream
from workbench.sequences.pattern import VISIBILITY, Pattern, joined, plain
from workbench.sequences.transfer import integers_on_device, on_device

MaskValue = TypeVar("MaskValue")


class Layout:
    """The division of the rows of one stream, or of several streams joined, into sequences.

    Args:
        lengths: rows of each sequence, as Python integers.
        offsets: the same, cumulated [sequences + 1], on the device.
        integers: the visibility integers that are not 0 everywhere, each [rows].
        order: for joined streams, the row (in the order of `torch.cat` over the streams) at each place of the
            order in which each sequence is contiguous [rows], on the host; None where rows are in that order already.
        streams: the streams that the rows are of; without any, rows have no fields.
        places: the place of each row in its sequence, in contiguous order [rows], where rows are before it that the
            layout doesn't have (a KV cache); None where they are counted from 0.
        pattern: the host's knowledge of the integers.
    """

    def __init__(
        self,
        lengths: list[int],
        offsets: Tensor,
        integers: dict[str, Tensor],
        order: Tensor | None = None,
        streams: Sequence[Stream] = (),
        places: Tensor | None = None,
        pattern: Pattern | None = None,
    ) -> None:
        self.lengths = lengths
        self.offsets = offsets
        self.integers = integers
        self.order = order
        self.streams = streams
        self.places = places
        self.pattern = pattern if integers else plain(lengths)
        self._kept: WeakKeyDictionary[Layout, dict[Hashable, Any]] = WeakKeyDictionary()

    @property
    def rows(self) -> int:
        return sum(self.lengths)

    @property
    def device(self) -> torch.device:
        return self.offsets.device

    def kept(self, keys: Layout, what: Hashable, make: Callable[[], MaskValue]) -> MaskValue:
        """A value that attention from these rows to those of `keys` needs in every layer: made once, cached while both
        live."""
        kept = self._kept.setdefault(keys, {})
        if what not in kept:
            kept[what] = make()
        return kept[what]

    @cached_property
    def starts(self) -> list[int]:
        """The beginning of each sequence, in contiguous order."""
        return [0, *accumulate(self.lengths)][:-1]

    @cached_property
    def contiguous_integers(self) -> dict[str, Tensor]:
        """The integers in the order in which each sequence is contiguous."""
        return {name: self.contiguous(values) for name, values in self.integers.items()}

    def contiguous(self, values: Tensor) -> Tensor:
        """Values of the rows in the order in which each sequence is contiguous."""
        if self.order is None:
            return values
        order, inverse = self._moves
        return select(values, order, inverse)

    def restored(self, values: Tensor) -> Tensor:
        """Values in that order, back in the order of the rows."""
        if self.order is None:
            return values
        order, inverse = self._moves
        return select(values, inverse, order)

    @cached_property
    def _moves(self) -> list[Tensor]:
        """The order and its inverse, on the device."""
        assert self.order is not None
        return integers_on_device([self.order, inverse_of(self.order)], self.device)

    def field(self, name: str) -> Tensor:
        """An integer field of the streams [rows]; 0 where a stream lacks it.

        Raises:
            WorkbenchError: no stream has it.
        """
        if not any(name in stream.fields for stream in self.streams):
            raise unknown("field", name, {f for stream in self.streams for f in stream.fields}, "these streams")
        return _concatenated(self.streams, name, self.device)

    @cached_property
    def positions(self) -> Tensor:
        """The positions of the rows [rows]: `position_ids`; rows of a stream without are counted."""
        if not self.streams:
            return self.restored(self.index)
        return torch.cat(
            [s.fields["position_ids"] if "position_ids" in s.fields else _single(s).index for s in self.streams]
        )

    def turns(self, size: int, dtype: torch.dtype, rotary: Rotary) -> Turns:
        """The rotary factors of heads of this size (`workbench.models.rotary.turns`), in the order of the rows: made
        once for all layers, or in each compiled one, where they are fused into the rotation."""

        def make() -> Turns:
            lengths = self.text_lengths if rotary.by_length else None
            return turns(self.positions, size // 2 * 2, dtype, rotary, lengths)

        return make() if torch.compiler.is_compiling() else self.kept(self, ("turns", size, dtype, rotary), make)

    @cached_property
    def text_lengths(self) -> Tensor:
        """Of each row, the greatest position of its text plus one [rows]."""
        last = self.positions.new_zeros(max(len(self.lengths), self.rows))
        last = last.scatter_reduce(0, self._text_ids, self.contiguous(self.positions), "amax")
        return self.restored(last[self._text_ids]) + 1

    @cached_property
    def _text_ids(self) -> Tensor:
        """The number of the text of each row, in contiguous order [rows]; several are packed into a sequence where it
        has `doc`."""
        if "doc" not in self.integers:
            return self.sequence_ids
        doc, ids = self.contiguous_integers["doc"], self.sequence_ids
        order = doc.argsort(stable=True)
        order = order[ids[order].argsort(stable=True)]  # torch.unique would wait for the device
        texts = torch.stack([ids, doc])[:, order]
        begun = (texts[:, 1:] != texts[:, :-1]).any(0).cumsum(0)
        return torch.empty_like(ids).index_copy(0, order, torch.cat([begun.new_zeros(1), begun])[: self.rows])

    @cached_property
    def position_range(self) -> tuple[int, int]:
        """The least and the greatest of the positions, as far as the host knows them without a wait for the device."""
        if not self.streams and self.places is not None:
            return int(self.places.min()), int(self.places.max())
        counted = [n for s in self.streams if "position_ids" not in s.fields for n in s.lengths]
        known = [s.known("position_ids") for s in self.streams if "position_ids" in s.fields and s.rows]
        ranges = [(int(found.min()), int(found.max())) for found in known]
        ranges.append((0, max((counted if self.streams else self.lengths) or [1]) - 1))
        return min(first for first, _ in ranges), max(last for _, last in ranges)

    @cached_property
    def counted(self) -> bool:
        """Whether the positions are known to be the places of the rows in their sequences.

        Only a CPU is asked: on another device the check would wait.
        """
        return self.device.type == "cpu" and torch.equal(self.contiguous(self.positions), self.index)

    @cached_property
    def sequence_ids(self) -> Tensor:
        """The number of the sequence of each row, in contiguous order [rows]."""
        return torch.repeat_interleave(self.offsets.diff(), output_size=self.rows)

    @cached_property
    def index(self) -> Tensor:
        """The place of each row in its sequence, in contiguous order [rows]."""
        if self.places is not None:
            return self.places
        return torch.arange(self.rows, device=self.device) - self.offsets[:-1][self.sequence_ids]


def layout_of(streams: list[Stream], places: Tensor | None = None) -> Layout:
    """The layout of one stream, or of several joined: their rows in the order of `torch.cat`.

    `places` are those of the rows in that order, where they are not counted from 0.
    """
    layout = _single(streams[0]) if len(streams) == 1 else _joined(streams)
    if places is not None:
        layout.places = layout.contiguous(places)
    return layout


def _single(stream: Stream) -> Layout:
    return Layout(stream.lengths, stream.offsets, stream.integers, streams=(stream,), pattern=stream.pattern)


def _joined(streams: list[Stream]) -> Layout:
    lengths = [sum(parts) for parts in zip(*(s.lengths for s in streams), strict=True)]
    offsets = torch.stack([s.offsets for s in streams]).sum(0)
    present = [name for name in VISIBILITY if any(name in s.fields for s in streams)]
    integers = {name: _concatenated(streams, name, offsets.device) for name in present}
    pattern = joined([s.pattern for s in streams], [s.lengths for s in streams])
    return Layout(lengths, offsets, integers, interleave(streams), streams, pattern=pattern)


def _concatenated(streams: Sequence[Stream], name: str, device: torch.device) -> Tensor:
    """A field of the rows of streams, in the order of `torch.cat`."""
    return torch.cat([s.fields.get(name, torch.zeros(s.rows, dtype=torch.long, device=device)) for s in streams])


def interleave(streams: list[Stream]) -> Tensor:
    """The permutation that brings the rows of each sequence together, made from the lengths on the host."""
    rows = [torch.arange(s.rows) for s in streams]
    base = 0
    pieces = []
    for stream, numbers in zip(streams, rows, strict=True):
        pieces.append(torch.split(numbers + base, stream.lengths))
        base += stream.rows
    return torch.cat([piece for sequence in zip(*pieces, strict=True) for piece in sequence])


def slots(sequences: Sequence[int], counts: Sequence[int], room: int, first: Sequence[int] | None = None) -> Tensor:
    """The places of `counts` rows of these sequences, from the row `first` of each on (by default from 0)."""
    begins = torch.tensor([number * room for number in sequences])
    if first is not None:
        begins = begins + torch.tensor(first)
    if all(count == 1 for count in counts):
        return begins
    widths = torch.tensor(counts)
    within = torch.arange(int(widths.sum())) - torch.repeat_interleave(widths.cumsum(0) - widths, widths)
    return torch.repeat_interleave(begins, widths) + within


def row_order(lengths: Sequence[int], room: int) -> Tensor:
    """The places of the rows of all sequences, one sequence after another."""
    return slots(range(len(lengths)), lengths, room)


class CacheLayout(Layout):
    """The layout of rows whose sequences are stored apart, with fields [sequences * room]."""

    def __init__(self, stream: Stream, room: int) -> None:
        super().__init__(stream.lengths, stream.offsets, stream.integers, streams=(stream,))
        self.room = room

    @cached_property
    def starts(self) -> list[int]:
        """The beginning of each sequence."""
        return [number * self.room for number in range(len(self.lengths))]

    @cached_property
    def counted(self) -> bool:
        """Not examined: the queries of a KV cache have places of their own anyway, so that the check saves nothing."""
        return False

    @cached_property
    def slots(self) -> Tensor:
        """The places of the rows, one sequence after another."""
        return on_device(row_order(self.lengths, self.room), self.device)

    def contiguous(self, values: Tensor) -> Tensor:
        """Values of the rows one sequence after another."""
        return values[self.slots]

    @cached_property
    def together(self) -> Layout:
        """The layout of the same rows one sequence after another."""
        (stream,) = self.streams
        fields = {name: self.contiguous(values) for name, values in stream.fields.items()}
        return layout_of([Stream(fields, stream.offsets, stream.lengths)])
