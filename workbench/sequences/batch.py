"""Jagged batches: streams as [rows, ...] tensors with offsets, no padding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import WorkbenchError
from workbench.sequences.fetched_rows import FetchedRows
from workbench.sequences.flat import flattened, moved_together
from workbench.sequences.pattern import VISIBILITY, KnownPattern, Pattern, pattern_of, plain
from workbench.sequences.sequence import WORKER_FIELDS, Rows, Sequence, Slot, row_count
from workbench.sequences.transfer import on_device

Targets = dict[str, Tensor]
Lengths = dict[str, list[int]]  # of each stream, the rows of each sequence
Change = Callable[[Tensor], Tensor]
T = TypeVar("T")


@dataclass
class Stream:
    """One stream of a batch: `fields` are [rows, ...] (`pixels`: [images, 3, height, width]).

    `offsets` [sequences + 1] is on the batch's device; `lengths` has the same values as Python integers, so that no
    code waits for the device to get a shape. `links` names the fields that are rows of a stream of the batch (-1:
    none), each with that stream. `host` holds copies of small fields from before the stream was moved (`known`).
    `visibility` is the pattern that the loader has read from the visibility integers; use `pattern`, which is None
    where the integers have changed.
    """

    fields: dict[str, Tensor]
    offsets: Tensor
    lengths: list[int]
    links: dict[str, str] = field(default_factory=dict)
    host: dict[str, Tensor] = field(default_factory=dict)
    visibility: KnownPattern | None = field(default=None, repr=False, compare=False)

    @property
    def rows(self) -> int:
        return sum(self.lengths)

    @property
    def integers(self) -> dict[str, Tensor]:
        """The visibility integers of the stream."""
        return {name: self.fields[name] for name in VISIBILITY if name in self.fields}

    @property
    def pattern(self) -> Pattern | None:
        """The visibility of the rows, as far as the host knows it without reading the integers."""
        integers = self.integers
        if not integers:
            return plain(self.lengths)
        return None if self.visibility is None else self.visibility.of(integers, self.lengths)

    def knowing(self, pattern: Pattern | None) -> Stream:
        """The same stream with a known pattern of its integers."""
        found = None if pattern is None or not self.integers else KnownPattern(pattern, self.integers, self.lengths)
        return replace(self, visibility=found)

    @property
    def starts(self) -> list[int]:
        """The row at which each sequence begins, and after them the number of rows."""
        return [0, *accumulate(self.lengths)]

    def map(self, function: Callable[[Tensor], Tensor], keeps: bool = False) -> Stream:
        """The same stream with `function` applied to every tensor. `keeps`: it leaves all values unchanged, on another
        device or in other memory, so that known values stay valid."""
        fields = {name: function(values) for name, values in self.fields.items()}
        host = _of_host(self.fields, fields, self.host)
        mapped = replace(self, fields=fields, offsets=function(self.offsets), host=host)
        return mapped.knowing(self.pattern) if keeps else mapped

    def known(self, name: str) -> Tensor:
        """A field on the host: the loader's copy, without a wait for the device; a field that was computed on the
        device is waited for."""
        return _known(self.fields, self.host, name)

    def equals(self, other: Stream) -> bool:
        """Whether both hold the same values."""
        return (
            self.lengths == other.lengths
            and self.links == other.links
            and self.fields.keys() == other.fields.keys()
            and all(torch.equal(values, other.fields[name]) for name, values in self.fields.items())
        )

    def numbers_of(self, sequences: list[int]) -> Tensor:
        """The rows of these sequences, one after the other [rows], on the host."""
        starts = self.starts
        parts = [torch.arange(starts[number], starts[number + 1]) for number in sequences]
        return torch.cat(parts or [torch.zeros(0, dtype=torch.long)])

    def rows_of(self, sequences: list[int]) -> Tensor:
        """As `numbers_of`, on the device."""
        return on_device(self.numbers_of(sequences), self.offsets.device)

    def pick(self, sequences: list[int]) -> Stream:
        """These sequences, in this order; one may occur several times."""
        rows = self.rows_of(sequences)
        lengths = [self.lengths[number] for number in sequences]
        offsets = on_device([0, *accumulate(lengths)], self.offsets.device)
        fields = {name: values[rows] for name, values in self.fields.items() if len(values) == self.rows}
        for name in self.fields.keys() - fields.keys():
            fields[name] = self._of_images(self.fields[name], sequences)
        pattern = self.pattern
        return Stream(fields, offsets, lengths, self.links).knowing(pattern and pattern.picked(sequences))

    def _of_images(self, values: Tensor, sequences: list[int]) -> Tensor:
        """The values of images [images, ...] that belong to these sequences; all sequences with images have equally
        many."""
        before = [0, *accumulate(min(length, 1) for length in self.lengths)]
        each = values.unflatten(0, (max(before[-1], 1), -1))
        wanted = [before[number] for number in sequences if self.lengths[number]]
        return each[on_device(torch.tensor(wanted, dtype=torch.long), values.device)].flatten(0, 1)


@dataclass
class Batch:
    """Sequences of one view, collated.

    `targets[objective]` holds the targets of that objective's loss; `links[objective]` names those that are rows of a
    stream, each with that stream. `roles` are the roles of sequences in their samples. `groups` number the samples: the
    sequences of one number are those of one sample, which stay together in a micro-batch. `host` holds copies of small
    targets from before the batch was moved (`known`).
    """

    streams: dict[str, Stream]
    targets: dict[str, Targets] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    links: dict[str, dict[str, str]] = field(default_factory=dict)
    roles: list[str] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    host: dict[str, Targets] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of sequences."""
        return next((len(stream.lengths) for stream in self.streams.values()), 0)

    def of_role(self, role: str) -> list[int]:
        """The sequences that have this role."""
        return [number for number, found in enumerate(self.roles) if found == role]

    def map(
        self, function: Callable[[Tensor], Tensor], known: dict[int, Stream] | None = None, keeps: bool = False
    ) -> Batch:
        """The same batch with `function` applied to every tensor; `keeps` as of `Stream.map`.

        Args:
            known: streams that the function was applied to already, by their `id`; is added to.
        """
        known = {} if known is None else known
        for stream in self.streams.values():
            if id(stream) not in known:
                known[id(stream)] = stream.map(function, keeps)
        streams = {name: known[id(stream)] for name, stream in self.streams.items()}
        targets = {name: {f: function(t) for f, t in fields.items()} for name, fields in self.targets.items()}
        host = {name: _of_host(self.targets[name], targets[name], self.host.get(name, {})) for name in targets}
        return replace(self, streams=streams, targets=targets, host=host)

    def known(self, objective: str, name: str) -> Tensor:
        """A target on the host, as `Stream.known`."""
        return _known(self.targets[objective], self.host.get(objective, {}), name)

    def common(self, other: Batch) -> frozenset[str]:
        """The streams that are the same objects in both batches: `share_streams` makes equal ones one object."""
        return frozenset(name for name, stream in self.streams.items() if other.streams.get(name) is stream)

    def to(self, device: torch.device | str) -> Batch:
        """The batch on a device, by one copy."""
        return _on(partial(self.map, keeps=True), torch.device(device))[0]

    def replace(self, stream: str, **fields: Tensor) -> Batch:
        """The same batch with other values in some fields of a stream, each [rows, ...]; without targets."""
        old = self.streams[stream]
        host = {name: values for name, values in old.host.items() if name not in fields}
        new = replace(old, fields={**old.fields, **fields}, host=host)
        return replace(self, streams={**self.streams, stream: new}, targets={}, links={}, host={})

    def linked_to(self, stream: str) -> frozenset[str]:
        """The stream, and those with links that lead to it, directly or through others."""
        found = {stream}
        while more := {n for n, s in self.streams.items() if n not in found and found & {*s.links.values()}}:
            found |= more
        return frozenset(found)

    def pick(self, sequences: Mapping[str, list[int]]) -> Batch:
        """A new batch of sequences from the streams of this one; without targets.

        Args:
            sequences: by stream, the sequences whose rows the new sequences get; all of one length. The first stream's
                sequences supply the keys, roles and groups.

        A stream with `links` can be picked together with the stream they lead to, the same sequences of both.
        """
        picked = {name: self.streams[name].pick(chosen) for name, chosen in sequences.items()}
        for name, stream in picked.items():
            for field_name, other in stream.links.items():
                if sequences.get(other) != sequences[name]:
                    raise ValueError(
                        f"{field_name!r} of the stream {name!r} names rows of {other!r}: pick the same ones of both"
                    )
                before = [self.streams[other].starts[number] for number in sequences[other]]
                by = [now - start for now, start in zip(picked[other].starts, before, strict=False)]
                stream.fields[field_name] = _moved(stream, field_name, by)
        first = next(iter(sequences.values()), [])
        keys = [self.keys[number] for number in first] if self.keys else []
        roles = [self.roles[number] for number in first] if self.roles else []
        groups = [self.groups[number] for number in first] if self.groups else []
        return Batch(picked, {}, keys, {}, roles, _numbered(groups))


@dataclass(repr=False)
class MicroBatch:
    """The input of one forward: the task, a batch per view, and each objective's count (known before any forward).

    `number` is (split, number, lane); `slots`, where texts are read on, has each sequence's. `tables` are the rows that
    it needs of tables, by the path of the embedding in the model. `buffer` [bytes] is the memory of all tensors, one
    after the other.
    """

    task: str
    views: dict[str, Batch]
    counts: dict[str, float]
    number: tuple[int, ...] = ()
    dropped: dict[str, int] = field(default_factory=dict)
    slots: list[Slot] = field(default_factory=list)
    tables: dict[str, FetchedRows] = field(default_factory=dict)
    buffer: Tensor | None = None

    def __repr__(self) -> str:
        views = "; ".join(
            f"view {name}: " + ", ".join(f"{stream} {rows.rows} rows" for stream, rows in view.streams.items())
            for name, view in self.views.items()
        )
        return f"<MicroBatch {self.task} {self.number}: {views}>"

    def to(self, device: torch.device | str) -> MicroBatch:
        """The micro-batch on a device, by one copy. On the CPU nothing is copied."""
        moved, buffer = _on(self.map, torch.device(device), self.buffer)
        return replace(moved, buffer=buffer)

    def pin_memory(self) -> MicroBatch:
        """The micro-batch in one pinned buffer, which a GPU copies while the host continues."""
        buffers: list[Tensor] = []

        def exchange(tensors: list[Tensor]) -> list[Tensor]:
            buffer, held = flattened(tensors, pin=True)
            buffers.append(buffer)
            return held

        return replace(exchanged(self.map, exchange), buffer=buffers[0])

    @property
    def place(self) -> tuple[str, tuple[int, ...]]:
        """The task and the number, by which it is known."""
        return self.task, self.number

    def map(self, function: Change) -> MicroBatch:
        """The same with `function` applied to every tensor, which leaves values unchanged; a stream that views share
        stays one object."""
        known: dict[int, Stream] = {}
        views = {name: view.map(function, known, keeps=True) for name, view in self.views.items()}
        return replace(self, views=views, tables={path: rows.map(function) for path, rows in self.tables.items()})


def _on(mapped: Callable[[Change], T], device: torch.device, buffer: Tensor | None = None) -> tuple[T, Tensor | None]:
    """The object whose tensors `mapped` changes, on a device, and the buffer of the tensors there.

    Args:
        buffer: their buffer here, where there is one.
    """
    if device.type == "cpu":
        return mapped(lambda t: t.to(device)), buffer
    there: list[Tensor] = []

    def exchange(tensors: list[Tensor]) -> list[Tensor]:
        moved, copied = moved_together(tensors, device, buffer)
        there.append(copied)
        return moved

    return exchanged(mapped, exchange), there[0]


def exchanged(mapped: Callable[[Change], T], exchange: Callable[[list[Tensor]], list[Tensor]]) -> T:
    """The object whose tensors `mapped` changes, each replaced with the one at its place in the output of
    `exchange`."""
    before = tensors_of(mapped)
    known = dict(zip(map(id, before), exchange(before), strict=True))
    return mapped(lambda tensor: known[id(tensor)])


def tensors_of(mapped: Callable[[Change], object]) -> list[Tensor]:
    """The tensors that `mapped` changes, each once, in its order."""
    found: dict[int, Tensor] = {}
    mapped(lambda tensor: found.setdefault(id(tensor), tensor))
    return list(found.values())


def share_streams(views: dict[str, Batch]) -> dict[str, Batch]:
    """The same views, where equal streams are one object: it is moved once, and networks recognise it."""
    shared: dict[str, Batch] = {}
    for name, view in views.items():
        streams = dict(view.streams)
        for stream, own in view.streams.items():
            known = (other.streams[stream] for other in shared.values() if stream in other.streams)
            streams[stream] = next((other for other in known if own.equals(other)), own)
        shared[name] = replace(view, streams=streams)
    return shared


def _small(values: Tensor) -> bool:
    """Whether the values are one number for each row, or whole numbers: the host then has a copy."""
    return values.dim() <= 1 or (values.dim() == 2 and values.dtype in (torch.int64, torch.bool))


def _of_host(values: dict[str, Tensor], moved: dict[str, Tensor], host: dict[str, Tensor]) -> dict[str, Tensor]:
    """The host's copies of values that were moved to a device: earlier copies, or the values themselves."""
    own = {name: values[name] for name, each in moved.items() if each.device.type != "cpu" and _small(each)}
    return {name: each for name, each in (own | host).items() if name in own and each.device.type == "cpu"}


def _known(values: Mapping[str, Tensor], host: Mapping[str, Tensor], name: str) -> Tensor:
    """A value on the host."""
    return host[name] if name in host and values[name].device.type != "cpu" else values[name].cpu()


def _moved(stream: Stream, field_name: str, by: list[int]) -> Tensor:
    """A link with a number added in each sequence; -1 stays."""
    links = stream.fields[field_name]
    lengths, added = torch.tensor(stream.lengths), torch.tensor(by)
    shift = on_device(torch.repeat_interleave(added, lengths, output_size=stream.rows), links.device)
    return torch.where(links < 0, links, links + shift)


def collate(sequences: list[Sequence], batch_targets: Mapping[str, Mapping[str, np.ndarray]] | None = None) -> Batch:
    """Concatenate sequences. A stream that some sequences lack has length 0 there; `Rows` are shifted by the offset.

    `batch_targets[objective]` are arrays that belong to the whole batch (returned by `corrupt`).
    """
    names = sorted({name for sequence in sequences for name in sequence.streams})
    lengths = {name: [sequence.length(name) for sequence in sequences] for name in names}
    streams = {name: _stream(sequences, name, lengths) for name in names}
    targets, links = _targets(sequences, lengths)
    for objective, arrays in (batch_targets or {}).items():
        targets.setdefault(objective, {}).update({f: torch.from_numpy(np.asarray(a)) for f, a in arrays.items()})
    keys, roles = [sequence.key for sequence in sequences], [sequence.role for sequence in sequences]
    groups = _numbered(sequence.group or (number, "alone") for number, sequence in enumerate(sequences))
    return Batch(streams, targets, keys, links, roles, groups)


def _numbered(groups: Iterable[Any]) -> list[int]:
    """The groups as numbers, in the order in which they come."""
    numbers: dict[Any, int] = {}
    return [numbers.setdefault(group, len(numbers)) for group in groups]


def _stream(sequences: list[Sequence], name: str, lengths: Lengths) -> Stream:
    present = [(i, s.streams[name]) for i, s in enumerate(sequences) if name in s.streams]
    wanted = sorted({f for _, fields in present for f in fields if f not in WORKER_FIELDS})
    collated, links = {}, {}
    for field_name in wanted:
        parts = []
        for i, fields in present:
            value = fields.get(field_name)
            if value is None:
                if field_name not in VISIBILITY and field_name != "masked":
                    raise ValueError(f"sequence {sequences[i].key!r}: stream {name!r} lacks the field {field_name!r}")
                value = np.zeros(row_count(fields), np.bool_ if field_name == "masked" else np.int64)
            if len(value) != lengths[name][i] and field_name != "pixels":  # one an image
                raise WorkbenchError(
                    f"sequence {sequences[i].key!r}: stream {name!r} has {lengths[name][i]} rows and {len(value)} "
                    f"entries of {field_name!r}. The transform or objective that writes it must write one for each row"
                )
            parts.append(value)
        if isinstance(parts[0], Rows):
            links[field_name] = parts[0].stream
            collated[field_name] = _linked([(i, p) for (i, _), p in zip(present, parts, strict=True)], lengths)
        else:
            collated[field_name] = torch.from_numpy(np.ascontiguousarray(np.concatenate(parts)))
    _check_integers(collated, name, sum(lengths[name]))
    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths[name])]).astype(np.int64))
    stream = Stream(collated, offsets, lengths[name], links)
    integers = {n: values.numpy() for n, values in stream.integers.items()}
    return stream.knowing(pattern_of(stream.lengths, integers)) if integers else stream


def _check_integers(fields: Mapping[str, Tensor], stream: str, rows: int) -> None:
    """Check the visibility integers of a stream.

    Raises:
        WorkbenchError: a visibility integer is not one number for each row.
    """
    for name in fields.keys() & {*VISIBILITY}:
        if fields[name].shape != (rows,) or fields[name].is_floating_point():
            found = f"{str(fields[name].dtype).removeprefix('torch.')} [{', '.join(map(str, fields[name].shape))}]"
            raise WorkbenchError(
                f"stream {stream!r}: the visibility integer {name!r} is {found} for {rows} rows. The transform that "
                "writes it must write one whole number for each row"
            )


def _linked(parts: list[tuple[int, Any]], lengths: Lengths) -> Tensor:
    """`Rows` of some sequences, each with its number, as rows of the batch."""
    streams = {part.stream if isinstance(part, Rows) else "" for _, part in parts}
    if len(streams) > 1:
        raise ValueError(f"rows of one stream in one sequence, of another in the next: {', '.join(sorted(streams))}")
    counts = lengths.get(streams.pop(), [0] * (1 + max(i for i, _ in parts)))
    starts = list(accumulate(counts, initial=0))
    sizes = [len(part) for _, part in parts]
    index = np.concatenate([np.asarray(part.index, np.int64) for _, part in parts])
    size = np.repeat([counts[i] for i, _ in parts], sizes)
    if (index >= size).any():
        worst = int((index - size).argmax())
        raise ValueError(f"row {index[worst]} of stream {parts[0][1].stream!r}, which has {size[worst]} rows there")
    shifted = index + np.repeat([starts[i] for i, _ in parts], sizes)
    return torch.from_numpy(np.where(index < 0, -1, shifted))


def _targets(sequences: list[Sequence], lengths: Lengths) -> tuple[dict[str, Targets], dict[str, dict[str, str]]]:
    """The targets of each objective, and the stream of those that are rows of one."""
    gathered: dict[str, dict[str, list[tuple[int, Any]]]] = {}
    for i, sequence in enumerate(sequences):
        for objective, fields in sequence.targets.items():
            for field_name, value in fields.items():
                gathered.setdefault(objective, {}).setdefault(field_name, []).append((i, value))
    targets: dict[str, Targets] = {}
    links: dict[str, dict[str, str]] = {}
    for objective, columns in gathered.items():
        targets[objective] = {}
        for field_name, parts in columns.items():
            if isinstance(parts[0][1], Rows):
                links.setdefault(objective, {})[field_name] = parts[0][1].stream
                targets[objective][field_name] = _linked(parts, lengths)
            else:
                targets[objective][field_name] = torch.from_numpy(np.concatenate([value for _, value in parts]))
    return targets, links
