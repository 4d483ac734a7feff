"""Random numbers of the pretend device, from CPU generators.

A CUDA generator is a seed and an offset. Its numbers here are those of a CPU generator with the same seed, so that
device and CPU draw alike after `torch.manual_seed`; and what was drawn from an offset on is drawn again when the offset
is set back, as activation checkpointing does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_states: dict[tuple[int, int], Tensor] = {}


def generator_of(device: torch.device, given: torch.Generator | None) -> torch.Generator:
    if given is not None and given.device.type == "cuda":
        return given
    index = device.index if device.index is not None else torch.cuda.current_device()
    return torch.cuda.default_generators[index]


@contextmanager
def drawing(source: torch.Generator) -> Iterator[None]:
    """The CPU's default generator stands where `source` stands; afterwards both remember how far it came."""
    seed, offset = source.initial_seed(), source.get_offset()
    if offset == 0:  # newly seeded: what was remembered of others is not needed
        for key in [key for key in _states if key[0] != seed]:
            del _states[key]
    state = _states.get((seed, offset))
    if state is None:
        key = seed if offset == 0 else (seed * 1_000_003 + offset) % 2**63
        state = torch.Generator().manual_seed(key).get_state()
        _states[seed, offset] = state
    before = torch.get_rng_state()
    torch.set_rng_state(state)
    try:
        yield
    finally:
        if source.get_offset() == offset:  # the operator was not run on CUDA's side
            source.set_offset(offset + 4)
        _states[seed, source.get_offset()] = torch.get_rng_state()
        torch.set_rng_state(before)
