"""The scale of the loss in float16 (Micikevicius et al. 2018, arXiv:1710.03740, "Mixed Precision Training", 3.2).

The gradients of a step are those of `scale * loss`, so that small ones are not rounded to 0; they are divided by the
scale before anything looks at them. As `torch.amp.GradScaler` has it, the scale is halved where a gradient is not
finite, and that step skipped; after `INTERVAL` steps without one it is doubled. Its powers of two change no digit.

Whether a step overflowed is read off the gradient's norm, which is read in any case: no wait for the device is added.
The norm is of gradients that are summed over ranks, so all ranks skip the same steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from workbench.parallel.parameter_shards import local_gradients

INITIAL, SMALLEST, LARGEST = 2.0**16, 1.0, 2.0**40
INTERVAL = 2000


class LossScale:
    """The scale, and the number of finite steps in a row with it.

    Args:
        ranks: their number, by which the loss of a micro-batch is multiplied, as gradients are averaged over ranks. The
            backward divides by it, so that the same steps overflow on any number of ranks.
    """

    def __init__(self, ranks: int = 1) -> None:
        self.ranks = ranks
        self.scale, self.finite = INITIAL, 0

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss that is backpropagated."""
        return loss * (self.scale / self.ranks)

    def unscale(self, parameters: Iterable[Tensor]) -> None:
        """Divide gradients of the scaled loss by the scale."""
        gradients = local_gradients(parameters)
        if gradients:
            torch._foreach_mul_(gradients, self.ranks / self.scale)

    def passed(self) -> None:
        """Count a step that was finite."""
        self.finite += 1
        if self.finite == INTERVAL:
            self.scale, self.finite = min(2 * self.scale, LARGEST), 0

    def overflowed(self) -> bool:
        """Halve the scale. False where it would fall below the smallest: then the scale is not the cause."""
        if self.scale / 2 < SMALLEST:
            return False
        self.scale, self.finite = self.scale / 2, 0
        return True

    def state(self) -> dict[str, float]:
        """The state for a checkpoint."""
        return {"scale": self.scale, "finite": self.finite}

    def load(self, state: Mapping[str, float]) -> None:
        """Continue from a `state`."""
        self.scale, self.finite = float(state["scale"]), int(state["finite"])
