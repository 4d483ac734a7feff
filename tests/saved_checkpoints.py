"""Saving a checkpoint in one call, as the trainer does in two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from workbench.runs.checkpoints import Checkpoints


def saved(checkpoints: Checkpoints, root: nn.Module, optimizer: torch.optim.Optimizer, *state: Any) -> Path:
    """Begin a checkpoint and complete it; returns its folder."""
    checkpoints.start(root, optimizer, *state)
    return checkpoints.finish()
