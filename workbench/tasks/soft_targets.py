"""Momentum distillation: labels mixed with what a moving average of the network says (ALBEF, arXiv:2107.07651, 3.3).

    L = - sum over rows i and classes c of [ (1 - a) y_ic + a q_ic ] log p_ic

y are the labels, p = softmax(logits) and q = softmax of the follower's logits, through which no gradient goes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from workbench.options.bounds import Share, Word


@dataclass(frozen=True)
class SoftTargets:
    """What an objective with soft targets is told.

    Attributes:
        follower: the network that follows the objective's own.
        share: a, of the follower's distribution in the targets.
        ramp: the part of the run in which a rises from 0 to `share`, linearly.
    """

    follower: Word
    share: Share
    ramp: Share = 0.0

    def share_at(self, progress: float) -> float:
        """a, at this progress of the run (0 to 1)."""
        return self.share if progress >= self.ramp else self.share * progress / self.ramp


def soft_cross_entropy(logits: Tensor, labels: Tensor, taught: Tensor, share: float | Tensor) -> Tensor:
    """The sum L in float32.

    Args:
        logits: [rows, classes]; -inf for what is no candidate.
        labels: [rows].
        taught: the follower's logits [rows, classes], -inf where `logits` are.
        share: a, one for all or of each row [rows].
    """
    log_p = F.log_softmax(logits.float(), -1)
    hard = F.nll_loss(log_p, labels, reduction="none")
    q = taught.detach().float().softmax(-1)
    soft = -(q * log_p.masked_fill(log_p == float("-inf"), 0.0)).sum(-1)
    return ((1 - share) * hard + share * soft).sum()
