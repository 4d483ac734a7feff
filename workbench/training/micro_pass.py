"""One pass of a micro-batch, the same wherever it runs: its generators seeded, on the device, in the right precision.

With dropout seeded from (seed, step, task, lane) the result depends neither on the number of ranks nor on how lanes are
spread over them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from workbench.keyed import digest
from workbench.sequences.batch import MicroBatch
from workbench.training.arithmetic import autocast_dtype

T = TypeVar("T")


class MicroPass:
    """Runs a model on micro-batches.

    Args:
        precision: `train.precision`.
        seed: the recipe's.
    """

    def __init__(self, precision: str, device: torch.device, seed: int) -> None:
        self.autocast = autocast_dtype(precision, device)
        self.device, self.seed = device, seed

    def __call__(
        self,
        model: Callable[[MicroBatch | None], T],
        micro: MicroBatch | None,
        *,
        step: int,
        task: str,
        lane: int,
    ) -> T:
        """What the model makes of it; twice the same for the same place (step, task, lane)."""
        torch.manual_seed(digest(self.seed, "device", step, task, lane) % 2**63)  # of the CPU and of CUDA
        moved = None if micro is None else micro.to(self.device)
        with torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None):
            return model(moved)
