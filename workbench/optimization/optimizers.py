"""Optimizers: AdamW (Loshchilov & Hutter, arXiv:1711.05101), which is torch's, Adafactor, LAMB and StableAdamW.

Adafactor (Shazeer & Stern 2018, arXiv:1804.04235): second moments by row and column, no first moment.

The paper's algorithm 5 as `torch.optim.Adafactor` has it. For each parameter x with gradient g at its t-th update,
w = t^-0.8, e1 the smallest step of its number type and e2 = 1e-3:

    r = (1 - w) r + w mean of g^2 over columns      c = (1 - w) c + w mean of g^2 over rows     (matrices)
    v = r c / max(mean r, e1)                       v = (1 - w) v + w g^2                       (vectors, scalars)
    u = g / sqrt(max(v, e1^2))                      a = min(lr, 1 / sqrt(t)) max(e2, RMS(x))
    x = (1 - lr weight_decay) x - a u / max(1, RMS(u))

torch reads RMS(x) and RMS(u) of every parameter on the host, a wait for the device each. Here they stay on the device.

LAMB (You et al. 2020, "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", arXiv:1904.00962).

Algorithm 2, phi the identity, for each parameter tensor x with gradient g at its t-th update:

    m = b1 m + (1 - b1) g      v = b2 v + (1 - b2) g^2
    u = (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps) + weight_decay x
    x = x - lr |x| / |u| u

As in the authors' code, parameters without weight decay by their role (`workbench.optimization.groups`: norms, biases,
tables) take the plain step x - lr u; so does a tensor of zeros, or an update of zeros, which has no ratio.

StableAdamW (Wortsman et al. 2023, "Stable and low-precision training for large-scale vision-language models",
arXiv:2304.13013, algorithm 2): AdamW whose rate is lowered where the second moment has fallen behind the gradients.

For each parameter tensor x with gradient g, and moments m and v without the bias of their first values:

    RMS = sqrt(mean(g^2 / max(v, eps^2)))      lr' = lr / max(1, RMS)
    x = x - lr' (weight_decay x + m / (sqrt(v) + eps))

The clipping is Adafactor's (arXiv:1804.04235, section 6), by tensor. Gradients need no clipping next to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from inspect import unwrap
from itertools import chain
from typing import Any, ClassVar

import torch
from torch import Tensor

from workbench.core.options.bounds import Betas, Epsilon, LearningRate, NotNegative
from workbench.optimization.moments import ByGroup, Moments, NeverCompiled, directions
from workbench.parallel.parameter_shards import (
    Stages,
    Summand,
    groups_of,
    layout_of,
    merged,
    whole_means,
    whole_norms,
    whole_size,
)


class Adamw(NeverCompiled, torch.optim.AdamW):
    """AdamW: Adam with decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101).

    torch's `fused` is used everywhere: on one CPU core it took 2.9 ms for 4.9 million parameters, where `foreach` took
    14.1 ms and the plain loop 12.4 ms.

    Its options are those of `workbench.optimization.moments.Moments`, with torch's `eps`.
    """

    works_on_shards: ClassVar[bool] = True
    lazy_rows: ClassVar[bool] = True  # its rule without weight decay is Adam's (`workbench.parallel.table_rows`)
    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        lr: LearningRate,
        betas: Betas = [0.9, 0.999],  # noqa: B006  (read alone)
        eps: Epsilon = 1e-8,
        weight_decay: NotNegative = 0.01,
    ) -> None:
        super().__init__(params, lr, (betas[0], betas[1]), eps, weight_decay, fused=True)


AT_ONCE = {"cuda": 2**25, "cpu": 2**18}
"""The most numbers of parameters of one shape that are stacked, by device. On CUDA it saves launches, for 128 MiB; on a
CPU the stack stays in the cache, and large matrices are not copied (2^20: 1.2 times as slow)."""


class Adafactor(ByGroup, torch.optim.Adafactor):  # type: ignore[misc]  # torch has overloads of `step`
    """Adafactor (Shazeer and Stern, arXiv:1804.04235, algorithm 5): second moments by row and column, no first moment.
    Updates are relative to the size of a parameter.

    At the t-th update the rate is min(lr, 1 / sqrt(t)) times the root mean square of the parameter, so `train.lr` is a
    relative rate (the paper and T5: 0.01). The state is that of `torch.optim.Adafactor`, by name and shape.

    Args:
        params: groups of parameters (set by the run).
        lr: the peak learning rate (set by the run).
        weight_decay: share of a weight, times `lr`, that an update removes.
    """

    moments: ClassVar[float] = 0.0  # a row and a column for a matrix
    works_on_shards: ClassVar[bool] = True
    means_over: ClassVar[dict[str, int]] = {"row_var": -1, "col_var": -2}

    def __init__(self, params: Iterable[dict[str, Any]], lr: LearningRate, weight_decay: NotNegative = 0.0) -> None:
        super().__init__(params, lr, weight_decay=weight_decay)

    def update(self, parameters: list[Tensor], group: dict[str, Any]) -> Stages[None]:
        self._init_group(group, [], [], [], [], [], [])  # torch's own state
        norms = list(torch._foreach_norm(parameters))
        sizes = dict(zip(parameters, norms, strict=True))
        if group["weight_decay"]:
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])

        def measured() -> Stages[None]:
            sizes.update(zip(parameters, (yield from whole_norms(norms, parameters)), strict=True))

        moves = (self._move(step, alike, sizes, group) for step, alike in self._alike(parameters))
        yield from merged(chain([measured()], moves))

    def _move(
        self, step: float, alike: list[Tensor], sizes: dict[Tensor, Tensor], group: dict[str, Any]
    ) -> Stages[None]:
        """Move parameters of one shape; `sizes` are their norms, of whole tensors after the exchange."""
        directions = yield from self._directions(alike, step ** group["beta2_decay"], group["eps"][0])
        root = math.sqrt(whole_size(alike[0]))
        lengths = torch.linalg.vector_norm(directions.reshape(len(alike), alike[0].numel()), dim=1)
        if over := groups_of(alike[0]):
            lengths = (yield [Summand(lengths.square_(), over)])[0].sqrt_()
        rates = (torch.stack([sizes[p] for p in alike]) / root).clamp_min(group["eps"][1])
        rates = rates * min(group["lr"], step**-0.5)
        lengths = lengths / (root * group["d"])
        directions *= (rates / lengths.clamp_min(1.0)).view(-1, *[1] * (directions.ndim - 1))
        torch._foreach_sub_(alike, list(directions.unbind()))

    def _alike(self, parameters: list[Tensor]) -> Iterator[tuple[float, list[Tensor]]]:
        """Parameters of one shape and number of updates, in stacks; and that number, this one included."""
        found: dict[tuple[Any, ...], list[Tensor]] = {}
        for p in parameters:
            step = self.state[p]["step"].add_(1).item()  # of the CPU
            found.setdefault((step, p.shape, p.dtype, p.device, layout_of(p)), []).append(p)
        for (step, *_), alike in found.items():
            at_once = AT_ONCE.get(alike[0].device.type, AT_ONCE["cpu"])
            most = max(1, at_once // max(1, alike[0].numel()))
            for first in range(0, len(alike), most):
                yield step, alike[first : first + most]

    def _directions(self, alike: list[Tensor], weight: float, smallest: float | None) -> Stages[Tensor]:
        """g / sqrt(v) of each parameter after its gradient [parameters, ...]."""
        smallest = torch.finfo(alike[0].dtype).eps if smallest is None else smallest
        gradients = _stacked([p.grad for p in alike if p.grad is not None])
        if alike[0].ndim < 2:
            variances = [self.state[p]["variance"] for p in alike]
            torch._foreach_lerp_(variances, list((gradients * gradients).unbind()), weight)
            return torch.stack(variances).clamp_min_(smallest**2).rsqrt_().mul_(gradients)
        squares = {dim: torch.linalg.vector_norm(gradients, dim=dim, keepdim=True).square_() for dim in (-1, -2)}
        if over := groups_of(alike[0], -1):
            (squares[-1],) = yield [Summand(squares[-1], over)]
        rows = self._averaged(alike, "row_var", squares[-1], weight)
        if over := groups_of(alike[0], -2):
            squares[-2], total = yield [Summand(squares[-2], over), Summand(rows.sum(-2, keepdim=True), over)]
            mean = total / whole_size(alike[0], -2)
        else:
            mean = rows.mean(-2, keepdim=True)
        columns = self._averaged(alike, "col_var", squares[-2], weight)
        rows = rows / mean.clamp_min(smallest)
        # 1 / sqrt(max(r c, e^2)), with roots before the product, which is as large as the parameters
        return torch.mul(rows.rsqrt(), columns.rsqrt()).clamp_max_(1 / smallest).mul_(gradients)

    def _averaged(self, alike: list[Tensor], name: str, squares: Tensor, weight: float) -> Tensor:
        """The means of the gradients' squares along a dimension, averaged over updates [parameters, ...]."""
        means = squares.div_(whole_size(alike[0], self.means_over[name]))
        kept = [self.state[p][name] for p in alike]
        torch._foreach_lerp_(kept, list(means.unbind()), weight)
        return _stacked(kept)


def _stacked(tensors: list[Tensor]) -> Tensor:
    """[tensors, ...]; of a single one a view."""
    return torch.stack(tensors) if len(tensors) > 1 else tensors[0][None]


class Lamb(Moments):
    """LAMB (You et al., arXiv:1904.00962): Adam with decoupled weight decay, scaled to the norm of each parameter
    tensor, for large batches.

    Its options are those of `workbench.optimization.moments.Moments`.
    """

    works_on_shards: ClassVar[bool] = True
    lazy_rows: ClassVar[bool] = True

    def update(self, parameters: list[Tensor], group: dict[str, Any]) -> Stages[None]:
        updates = directions(*self.moved(parameters, group["betas"]), group["eps"])
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        if group.get("decayed", True):
            torch._foreach_mul_(updates, (yield from _trust_ratios(parameters, updates)))
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])


def _trust_ratios(parameters: list[Tensor], updates: list[Tensor]) -> Stages[list[Tensor]]:
    """|x| / |u| of every tensor, 1 where one of them is 0; no wait for the device."""
    norms = [*torch._foreach_norm(parameters), *torch._foreach_norm(updates)]
    norms = yield from whole_norms(norms, 2 * parameters)
    x, u = (torch.stack(each) for each in (norms[: len(updates)], norms[len(updates) :]))
    return list(torch.where((x > 0) & (u > 0), x / u, torch.ones_like(x)).unbind())


class StableAdamw(Moments):
    """StableAdamW (Wortsman et al., arXiv:2304.13013, algorithm 2): AdamW with Adafactor's update clipping, for large
    learning rates.

    Its options are those of `workbench.optimization.moments.Moments`.
    """

    works_on_shards: ClassVar[bool] = True

    def update(self, parameters: list[Tensor], group: dict[str, Any]) -> Stages[None]:
        first, second = self.moved(parameters, group["betas"])
        excess = torch._foreach_clamp_min(second, group["eps"] ** 2)
        gradients = [p.grad for p in parameters if p.grad is not None]
        ratios = torch._foreach_div(torch._foreach_mul(gradients, gradients), excess)
        means = yield from whole_means(list(ratios), parameters)
        excesses = torch.stack(means).sqrt_().clamp_min_(1.0)
        rates = list((group["lr"] / excesses).unbind())
        updates = directions(first, second, group["eps"])
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        torch._foreach_mul_(updates, rates)
        torch._foreach_sub_(parameters, updates)
