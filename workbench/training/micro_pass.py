"""One pass of a micro-batch, the same wherever it runs: its generators seeded, on the device, in the right precision.

With dropout seeded from (seed, step, task, lane) the result depends neither on the number of ranks nor on how lanes are
spread over them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from workbench.errors import WorkbenchError
from workbench.keyed import digest
from workbench.sequences.batch import MicroBatch

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


def autocast_dtype(precision: str, device: torch.device, option: str = "train.precision") -> torch.dtype | None:
    """What is asked for or, on auto, bfloat16 where a CUDA device computes in it; None is float32.

    On a CPU without bfloat16 units autocast is many times slower than float32, so auto never uses it there.

    Args:
        precision: auto, float32, bfloat16 or float16.
        option: what said so, for the message.

    Raises:
        WorkbenchError: bfloat16 on a CUDA device that lacks it.
    """
    able = device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)
    if precision == "bfloat16" and not able:
        raise WorkbenchError(f"{option} = bfloat16: {torch.cuda.get_device_name(device)} lacks it; use float32")
    if precision == "float16":
        return torch.float16
    wanted = precision == "bfloat16" or (precision == "auto" and device.type == "cuda" and able)
    return torch.bfloat16 if wanted else None
