"""Jagged batches: streams as [rows, ...] tensors with offsets, no padding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.sequences.sequence import WORKER_FIELDS, Rows, Sequence, Slot, row_count

VISIBILITY = ("doc", "rank", "until", "branch", "anchor")
Targets = dict[str, Tensor]


@dataclass
class Stream:
    """One stream of a batch: `fields` are [rows, ...] (`pixels`: [images, 3, height, width]).

    `offsets` [sequences + 1] is on the batch's device; `lengths` is the same knowledge as Python integers, so
    that nothing has to wait for the device to learn a shape.
    """

    fields: dict[str, Tensor]
    offsets: Tensor
    lengths: list[int]

    @property
    def rows(self) -> int:
        return sum(self.lengths)

    def rows_of(self, sequences: list[int]) -> Tensor:
        """The rows of these sequences, one after the other [rows]."""
        starts = [0, *accumulate(self.lengths)]
        parts = [torch.arange(starts[number], starts[number + 1]) for number in sequences]
        return torch.cat(parts or [torch.zeros(0, dtype=torch.long)]).to(self.offsets.device)

    def pick(self, sequences: list[int]) -> Stream:
        """These sequences, in this order; one may be there several times."""
        rows = self.rows_of(sequences)
        lengths = [self.lengths[number] for number in sequences]
        offsets = torch.tensor([0, *accumulate(lengths)], device=self.offsets.device)
        return Stream({name: values[rows] for name, values in self.fields.items()}, offsets, lengths)


@dataclass
class Batch:
    """Sequences of one view, collated. `targets[objective]` holds what that objective's loss needs."""

    streams: dict[str, Stream]
    targets: dict[str, Targets] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Number of sequences."""
        return next((len(stream.lengths) for stream in self.streams.values()), 0)

    def map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """The same batch with `function` applied to every tensor."""
        streams = {
            name: Stream({f: function(t) for f, t in s.fields.items()}, function(s.offsets), s.lengths)
            for name, s in self.streams.items()
        }
        targets = {name: {f: function(t) for f, t in fields.items()} for name, fields in self.targets.items()}
        return Batch(streams, targets, self.keys)

    def to(self, device: torch.device | str) -> Batch:
        return self.map(lambda t: t.to(device, non_blocking=True))

    def pin_memory(self) -> Batch:
        return self.map(lambda t: t.pin_memory())

    def replace(self, stream: str, **fields: Tensor) -> Batch:
        """The same batch with other values in some fields of a stream, each [rows, ...]; without targets."""
        old = self.streams[stream]
        new = Stream({**old.fields, **fields}, old.offsets, old.lengths)
        return Batch({**self.streams, stream: new}, {}, self.keys)

    def pick(self, sequences: Mapping[str, list[int]]) -> Batch:
        """Sequences put together anew from the streams of this batch's; without targets.

        Args:
            sequences: for each stream that is wanted, whose rows each new sequence gets; all of one length. The first
                stream's give the new sequences their keys.

        Only streams whose fields are [rows, ...] and name no rows of other streams can be picked.
        """
        picked = {name: self.streams[name].pick(chosen) for name, chosen in sequences.items()}
        first = next(iter(sequences.values()), [])
        return Batch(picked, {}, [self.keys[number] for number in first] if self.keys else [])


@dataclass
class MicroBatch:
    """What one forward needs: the task, a batch per view, and each objective's count (known before any forward).

    `number` is (split, number, lane); `slots`, where texts are read on, has each sequence's.
    """

    task: str
    views: dict[str, Batch]
    counts: dict[str, float]
    number: tuple[int, ...] = ()
    dropped: dict[str, int] = field(default_factory=dict)
    slots: list[Slot] = field(default_factory=list)

    def to(self, device: torch.device | str) -> MicroBatch:
        views = {name: view.to(device) for name, view in self.views.items()}
        return replace(self, views=views)

    def pin_memory(self) -> MicroBatch:
        views = {name: view.pin_memory() for name, view in self.views.items()}
        return replace(self, views=views)


def collate(sequences: list[Sequence], batch_targets: Mapping[str, Mapping[str, np.ndarray]] | None = None) -> Batch:
    """Concatenate sequences. A stream that some sequences lack has length 0 there; `Rows` are shifted by the offset.

    `batch_targets[objective]` are arrays that belong to the whole batch (what `corrupt` returned).
    """
    names = sorted({name for sequence in sequences for name in sequence.streams})
    starts: dict[str, list[int]] = {}
    streams = {}
    for name in names:
        lengths = [sequence.length(name) for sequence in sequences]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        starts[name] = offsets.tolist()
        streams[name] = Stream(_stream_fields(sequences, name, offsets), torch.from_numpy(offsets), lengths)
    targets = _targets(sequences, starts)
    for objective, arrays in (batch_targets or {}).items():
        targets.setdefault(objective, {}).update({f: torch.from_numpy(np.asarray(a)) for f, a in arrays.items()})
    return Batch(streams, targets, [sequence.key for sequence in sequences])


def _stream_fields(sequences: list[Sequence], name: str, offsets: np.ndarray) -> dict[str, Tensor]:
    present = [(i, s.streams[name]) for i, s in enumerate(sequences) if name in s.streams]
    wanted = sorted({f for _, fields in present for f in fields if f not in WORKER_FIELDS})
    collated = {}
    for field_name in wanted:
        parts = []
        for i, fields in present:
            value = fields.get(field_name)
            if value is None:
                if field_name not in VISIBILITY and field_name != "masked":
                    raise ValueError(f"sequence {sequences[i].key!r}: stream {name!r} lacks the field {field_name!r}")
                value = np.zeros(row_count(fields), np.bool_ if field_name == "masked" else np.int64)
            if field_name == "token":
                value = value + _text_start(sequences, i)
            parts.append(value)
        collated[field_name] = torch.from_numpy(np.ascontiguousarray(np.concatenate(parts)))
    return collated


def _text_start(sequences: list[Sequence], i: int) -> int:
    return sum(sequence.length("text") for sequence in sequences[:i])


def _targets(sequences: list[Sequence], starts: dict[str, list[int]]) -> dict[str, Targets]:
    gathered: dict[str, dict[str, list[Any]]] = {}
    for i, sequence in enumerate(sequences):
        for objective, fields in sequence.targets.items():
            for field_name, value in fields.items():
                if isinstance(value, Rows):
                    value = np.asarray(value.index, np.int64) + starts[value.stream][i]
                gathered.setdefault(objective, {}).setdefault(field_name, []).append(value)
    return {
        objective: {f: torch.from_numpy(np.concatenate(values)) for f, values in fields.items()}
        for objective, fields in gathered.items()
    }
