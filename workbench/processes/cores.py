"""The cores of this machine, and what of them a process may take."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # preparing a text asks for its cores and needs no torch
    import torch

MOST_LOADERS = 16
"""Loader processes of a GPU at most: each decodes some 130 photographs a second."""


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def loaders(device: torch.device) -> int:
    """How many loader processes a rank on `device` should have: a GPU all of its share of the cores but one, at most
    `MOST_LOADERS`; a CPU one, since training itself takes the cores."""
    if device.type == "cpu":
        return 1
    share = cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, min(share - 1, MOST_LOADERS))
