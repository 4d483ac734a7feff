"""Even loads of experts (Switch Transformer, Fedus et al., arXiv:2101.03961, equations 4 to 6).

With E experts in a layer, c_e the rows sent to e for each row of a micro-batch, and P_e the mean of its probability,

    L = E sum over e of c_e P_e, the mean over layers, times the sequences of the micro-batch

It is the number of experts of a row where all loads are even, and greater where they are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.models.context import ROUTES
from workbench.models.feed_forward import Experts
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput, Objective
from workbench.sequences.sequence import Sequence

if TYPE_CHECKING:
    from workbench.models.network import Network


class Balance(Objective):
    """Even loads of the experts of a network (Switch Transformer, arXiv:2101.03961, equations 4 to 6), next to the
    objectives that it learns by; Mixtral's weight is 0.001 to 0.02.

    Its metrics are the mean over layers of the loss, and the shares of the rows that the most and the least loaded
    expert get, 1 / experts where loads are even.

    Raises:
        WorkbenchError: no layer of the network has experts.
    """

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            sequence.targets[self.name] = {"labels": np.zeros(1, np.int64)}
        return {}

    def head(self, network: Network) -> Head:
        if not any(isinstance(module, Experts) for module in network.modules()):
            raise WorkbenchError(
                f"objective {self.name!r} needs a layer with experts; add experts: {{count: 8, top: 2}} to a layer, or "
                "leave the objective out"
            )
        return BalanceHead()


class BalanceHead(Head):
    """The loss of what the layers have kept of their loads (`Context.route`)."""

    def forward(self, inputs: HeadInputs) -> LossOutput:
        """Metrics `balance`, `most` and `least`, of no sequences where no layer with experts has run."""
        size, read = len(inputs.targets["labels"]), inputs.read()
        if ROUTES not in read.taps:  # layers may be dropped, and a micro-batch may lack their stream
            labels = inputs.targets["labels"]
            nothing = sum(
                (rows[:0].float().sum() for rows in read.states.values()), torch.zeros((), device=labels.device)
            )
            return LossOutput(nothing, {name: (nothing.detach(), 0) for name in ("balance", "most", "least")})
        losses, most, least = [], [], []
        for load in read.taps[ROUTES].values():
            rows, probabilities = load.float()
            total, sent = probabilities.detach().sum().clamp_min(1.0), rows.sum().clamp_min(1.0)
            losses.append(len(rows) * (rows / total * (probabilities / total)).sum())
            most.append(rows.amax() / sent)
            least.append(rows.amin() / sent)
        balance = torch.stack(losses).mean()
        found = {"balance": balance, "most": torch.stack(most).amax(), "least": torch.stack(least).amin()}
        return LossOutput(balance * size, {name: (value.detach() * size, size) for name, value in found.items()})
