"""Modules to which adapters are added, each on three sequences: the second has a single row, the third none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from workbench.models.adapter import END, KEY_VALUES, LINEAR, WEIGHTS, AdapterPlace, LayerStates, NetworkEnd
from workbench.models.attention.call import attend
from workbench.models.attention.key_values import KeyValueHook, KeyValues
from workbench.models.context import Context
from workbench.models.layout import layout_of
from workbench.sequences.batch import Batch, Stream

LENGTHS = [3, 1, 0]


class Adapted(NamedTuple):
    """A module, what it is given of these sequences, and what of the result counts [rows, ...]."""

    module: nn.Module
    given: Callable[[list[int]], Any]
    rows: Callable[[Any], Tensor]


def rows_of(sequences: list[int], *width: int) -> Tensor:
    g = torch.Generator().manual_seed(1)
    parts = torch.randn(sum(LENGTHS), *width, generator=g).split(LENGTHS)
    return torch.cat([parts[n] for n in sequences])


def stream_of(sequences: list[int]) -> Stream:
    lengths = [LENGTHS[n] for n in sequences]
    positions = torch.cat([torch.arange(n) for n in lengths])
    return Stream({"position_ids": positions}, torch.tensor([0, *lengths]).cumsum(0), lengths)


def _linear() -> Adapted:
    torch.manual_seed(1)
    return Adapted(nn.Linear(6, 5), lambda sequences: rows_of(sequences, 6), lambda found: found)


def _seen() -> Adapted:
    def given(sequences: list[int]) -> KeyValues:
        keys, values = rows_of(sequences, 2, 2, 3).unbind(1)
        return KeyValues(keys, values, layout_of([stream_of(sequences)]))

    def read(found: KeyValues) -> Tensor:
        """What queries of ones make of it."""
        sequences = {4: [0, 1, 2], 3: [0], 1: [1], 0: [2]}[sum(lengths_before(found))]
        queries = layout_of([stream_of(sequences)])
        return attend(torch.ones(queries.rows, 2, 3), found.keys, found.values, queries, found.layout)[0]

    def lengths_before(found: KeyValues) -> list[int]:
        return found.layout.streams[-1].lengths

    return Adapted(KeyValueHook(2, 3), given, read)


def _end() -> Adapted:
    def given(sequences: list[int]) -> LayerStates:
        hidden = [{"text": rows} for rows in rows_of(sequences, 3, 8).unbind(1)]
        return LayerStates(hidden, Context(Batch({"text": stream_of(sequences)})))

    return Adapted(NetworkEnd({"text": 8}, 2), given, lambda found: found["text"])


MADE: dict[AdapterPlace, Callable[[], Adapted]] = {LINEAR: _linear, WEIGHTS: _linear, KEY_VALUES: _seen, END: _end}
