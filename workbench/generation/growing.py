"""Putting a row behind every sequence of a batch."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from workbench.models.layout import interleave
from workbench.sequences.batch import Batch, Stream


def last_rows(stream: Stream) -> dict[str, Tensor]:
    """The integer fields of each sequence's last row, each [sequences]."""
    own = {name: values for name, values in stream.fields.items() if values.shape == (stream.rows,)}
    return {name: at_ends(stream, values) for name, values in own.items()}


def at_ends(stream: Stream, values: Tensor) -> Tensor:
    """Of values of the rows those of each sequence's last row [sequences, ...]."""
    if all(length == 1 for length in stream.lengths):
        return values
    return values[stream.offsets[1:] - 1]


def grown(batch: Batch, name: str, rows: dict[str, Tensor]) -> Batch:
    """The batch with one more row, of the fields `rows`, each [sequences], at the end of each sequence of a stream."""
    stream = batch.streams[name]
    count = len(stream.lengths)
    more = Stream(rows, torch.arange(count + 1, device=stream.offsets.device), [1] * count)
    order = interleave([stream, more]).to(stream.offsets.device)
    streams = {other: _following(found, name, order) for other, found in batch.streams.items()}
    fields = {field: torch.cat([streams[name].fields[field], values])[order] for field, values in rows.items()}
    lengths = [length + 1 for length in stream.lengths]
    streams[name] = replace(stream, fields=fields, offsets=stream.offsets + more.offsets, lengths=lengths)
    return replace(batch, streams=streams, targets={}, links={})


def _following(stream: Stream, name: str, order: Tensor) -> Stream:
    """A stream whose links name the same rows of another one as before, now that these stand in another order."""
    links = {field for field, other in stream.links.items() if other == name}
    places = torch.argsort(order) if links else order
    moved = {field: torch.where(stream.fields[field] < 0, -1, places[stream.fields[field]]) for field in links}
    return replace(stream, fields={**stream.fields, **moved}) if links else stream
