"""One pass of a micro-batch, the same wherever it runs: its generators seeded, on the device, in the right precision.

With dropout seeded from (seed, step, task, lane) the result depends neither on the number of ranks nor on how lanes are
spread over them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from workbench.keyed import digest
from workbench.sequences.batch import MicroBatch
from workbench.training.arithmetic import autocast_dtype

T = TypeVar("T")


class MicroPass:
    """Runs a model on micro-batches, and has the next one copied to the device meanwhile.

    Args:
        precision: `train.precision`.
        seed: the recipe's.
    """

    def __init__(self, precision: str, device: torch.device, seed: int) -> None:
        self.autocast = autocast_dtype(precision, device)
        self.device, self.seed = device, seed
        self.copies = Copies(device)

    def __call__(
        self,
        model: Callable[[MicroBatch | None], T],
        micro: MicroBatch | None,
        *,
        step: int,
        task: str,
        lane: int,
        following: MicroBatch | None = None,
        again: bool = False,
    ) -> T:
        """What the model makes of it; twice the same for the same place (step, task, lane).

        Args:
            following: the micro-batch of the next pass.
            again: whether this one will come again, so that its copy stays on the device.
        """
        torch.manual_seed(digest(self.seed, "device", step, task, lane) % 2**63)  # of the CPU and of CUDA
        moved = None if micro is None else self.copies.take(micro, again=again)
        if following is not None:
            self.copies.begin(following)
        with torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None):
            return model(moved)


class Copies:
    """Micro-batches on their way to the device. On CUDA they are copied in a stream of their own, while another is
    computed on; who takes one has the device wait for its copy, not the host."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._under_way: dict[int, tuple[MicroBatch, MicroBatch, torch.cuda.Event]] = {}

    def begin(self, micro: MicroBatch) -> None:
        """Begin to copy one that will be taken."""
        if self._stream is None or id(micro) in self._under_way:
            return
        with torch.cuda.stream(self._stream):
            moved = micro.to(self.device)
            self._under_way[id(micro)] = micro, moved, self._stream.record_event()

    def take(self, micro: MicroBatch, *, again: bool = False) -> MicroBatch:
        """It on the device; its copy is kept where it is taken `again`."""
        if self._stream is None:
            return micro.to(self.device)
        self.begin(micro)
        _, moved, copied = self._under_way[id(micro)] if again else self._under_way.pop(id(micro))
        reader = torch.cuda.current_stream(self.device)
        reader.wait_event(copied)

        def read(tensor: Tensor) -> Tensor:
            tensor.record_stream(reader)  # its memory is the copying stream's, and not free before it was read
            return tensor

        return moved.map(read)
