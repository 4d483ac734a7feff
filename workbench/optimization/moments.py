"""The base of optimizers of Adam's family (Kingma & Ba, arXiv:1412.6980): the two moments, and the step over groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor

from workbench.core.options.bounds import Betas, Epsilon, LearningRate, NotNegative
from workbench.parallel.parameter_shards import Stages, exchange, merged


class NeverCompiled:
    """An optimizer's methods without torch's wrappers, which end graphs of the compiler and import torch._dynamo for it
    (1.3 s of processor time). A run compiles layers alone."""

    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = unwrap(torch.optim.Optimizer.load_state_dict)


class ByGroup(NeverCompiled, ABC):
    """The step of an optimizer over its groups; a subclass's `update` moves all parameters of a group at once.

    It is no optimizer itself: pykeen registers subclasses of optimizers, and refuses a second Adafactor.
    """

    param_groups: list[dict[str, Any]]

    @abstractmethod
    def update(self, parameters: list[Tensor], group: dict[str, Any]) -> Stages[None]:
        """Move the parameters of a group, all of which have a gradient.

        It is a generator, which yields summands of statistics of whole tensors (`whole_norms`, `whole_means`).
        """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One update of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        trained = [([p for p in group["params"] if p.grad is not None], group) for group in self.param_groups]
        exchange(merged(self.update(parameters, group) for parameters, group in trained if parameters))
        return loss


class Moments(ByGroup, torch.optim.Optimizer):  # type: ignore[misc]  # torch has overloads of `step`
    """Stores a moving average of the gradients and one of their squares; a subclass's `update` uses them.

    Args:
        params: groups of parameters (set by the run).
        lr: the peak learning rate (set by the run).
        betas: decay of the two moments.
        eps: added to the root of the second moment.
        weight_decay: share of a weight that is part of its update, which the rate then scales.
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        lr: LearningRate,
        betas: Betas = [0.9, 0.999],  # noqa: B006  (read alone)
        eps: Epsilon = 1e-6,
        weight_decay: NotNegative = 0.01,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay})

    def moved(self, parameters: list[Tensor], betas: tuple[float, float]) -> tuple[list[Tensor], list[Tensor]]:
        """Both moments of each parameter after its gradient, without the bias of their first values:
        m / (1 - b1^t), v / (1 - b2^t)."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter] = {
                    "step": torch.zeros(()),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
        first = [self.state[p]["exp_avg"] for p in parameters]
        second = [self.state[p]["exp_avg_sq"] for p in parameters]
        steps = [self.state[p]["step"].add_(1).item() for p in parameters]
        torch._foreach_lerp_(first, gradients, 1 - betas[0])
        torch._foreach_mul_(second, betas[1])
        torch._foreach_addcmul_(second, gradients, gradients, 1 - betas[1])
        return (
            list(torch._foreach_div(first, [1 - betas[0] ** t for t in steps])),
            list(torch._foreach_div(second, [1 - betas[1] ** t for t in steps])),
        )


def directions(first: list[Tensor], second: list[Tensor], eps: float) -> list[Tensor]:
    """Adam's direction of each parameter, m / (sqrt(v) + eps)."""
    roots = torch._foreach_sqrt(second)
    torch._foreach_add_(roots, eps)
    return list(torch._foreach_div(first, roots))
