"""Feed-forward networks of layers: one for all rows, or several experts of which each row is sent to a few."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Size
from workbench.models.context import Context
from workbench.models.permutation import select
from workbench.models.tensor_cut import CutModule, TensorCuts

Ungated = Literal["gelu", "gelu_tanh", "quick_gelu", "relu", "tanh"]
Activation = Literal[Ungated, "swiglu", "geglu", "geglu_tanh"]

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),  # CLIP's
    "relu": F.relu,
    "tanh": torch.tanh,
    "swiglu": F.silu,
    "geglu": F.gelu,
    "geglu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}
GATED = ("swiglu", "geglu", "geglu_tanh")


def activation(name: Activation) -> Callable[[Tensor], Tensor]:
    """The activation function of this name."""
    return ACTIVATIONS[name]


class FeedForward(CutModule, nn.Module):
    """outer(act(inner(x))); if gated (arXiv:2002.05202) outer(act(gate) * inner), both from one matrix."""

    def __init__(
        self, hidden_size: int, intermediate_size: int, activation_name: Activation = "gelu", bias: bool = True
    ) -> None:
        super().__init__()
        self.activation = activation(activation_name)
        self.gated = activation_name in GATED
        self.inner = nn.Linear(hidden_size, intermediate_size * (2 if self.gated else 1), bias=bias)
        self.outer = nn.Linear(intermediate_size, hidden_size, bias=bias)

    def tensor_cuts(self) -> TensorCuts:
        blocks = 2 if self.gated else 1
        size = {"intermediate_size": self.inner.out_features // blocks}
        return TensorCuts(size, columns={"inner": blocks}, rows={"outer": 1})

    def forward(self, x: Tensor) -> Tensor:
        x = self.entered(x)
        if self.gated:
            gate, value = self.inner(x).chunk(2, dim=-1)
            return self.outer(self.activation(gate) * value)
        return self.outer(self.activation(self.inner(x)))


GROUPED_ON = ("cpu",)
"""The devices on which torch multiplies groups of rows of every dtype; elsewhere those of bfloat16, whose rows begin at
multiples of 16 bytes."""


@dataclass(frozen=True)
class ExpertOptions:
    """Several feed-forward networks in place of one, of which each row is sent to a few (Shazeer et al.,
    arXiv:1701.06538; Mixtral, arXiv:2401.04088, section 2.1). The objective `balance` keeps their loads even.

    Attributes:
        count: of the experts.
        top: experts of a row, those with the highest probabilities.
        size: inner width of an expert, by default the `intermediate_size` of the layer.
        shared: inner width of one more that reads every row (DeepSeekMoE, arXiv:2401.06066); null for none.
        normalised: whether the probabilities of a row's experts are divided by their sum (Mixtral).

    Raises:
        WorkbenchError: more experts of a row than there are.
    """

    count: Count
    top: Count = 2
    size: Size | None = None
    shared: Size | None = None
    normalised: bool = True

    def __post_init__(self) -> None:
        if self.top > self.count:
            raise WorkbenchError(f"top = {self.top} of count = {self.count} experts; allowed: at most all of them")


class Experts(nn.Module):
    """sum over the experts e of a row of p_e outer_e(act(inner_e x)), with p = softmax(R x) of all experts.

    No row is dropped, however uneven the loads are: the rows are sorted by expert, and multiplied in groups. Experts
    have no biases. Under tensor parallelism they are whole on every rank.
    """

    def __init__(self, hidden_size: int, intermediate_size: int, name: Activation, options: ExpertOptions) -> None:
        super().__init__()
        size = options.size or intermediate_size
        self.activation, self.gated = activation(name), name in GATED
        self.top, self.normalised = options.top, options.normalised
        self.router = nn.Linear(hidden_size, options.count, bias=False)
        self.inner = nn.Parameter(torch.zeros(options.count, size * (2 if self.gated else 1), hidden_size))
        self.outer = nn.Parameter(torch.zeros(options.count, hidden_size, size))
        self.shared = FeedForward(hidden_size, options.shared, name, bias=False) if options.shared else None

    def initialise(self, scale: float) -> None:
        maps = [module.weight for module in self.modules() if isinstance(module, nn.Linear)]
        for weight in (self.inner, self.outer, *maps):
            nn.init.normal_(weight, std=scale)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        logits = self.router(x)  # under autocast in the dtype of all products
        probabilities = logits.float().softmax(-1)
        shares, chosen = probabilities.topk(self.top, -1)
        if self.normalised:
            shares = shares / shares.sum(-1, keepdim=True)
        expert = chosen.flatten()
        load = expert.new_zeros(len(self.inner)).index_add(0, expert, torch.ones_like(expert))
        context.route(torch.stack([load, probabilities.sum(0)]))
        order = expert.argsort(stable=True)
        back = torch.empty_like(order).index_copy(0, order, torch.arange(len(order), device=order.device))
        copies = x.unsqueeze(1).expand(-1, self.top, -1).flatten(0, 1)
        made = self._of_groups(select(copies, order, back).to(logits.dtype), load, expert[order])
        each = select(made, back, order).unflatten(0, (-1, self.top))
        mixed = (each * shares.to(each.dtype).unsqueeze(-1)).sum(1)
        return mixed if self.shared is None else mixed + self.shared(x)

    def _of_groups(self, rows: Tensor, load: Tensor, expert: Tensor) -> Tensor:
        """Each expert's output of its rows, which are one group after the other."""
        ends = load.cumsum(0).to(torch.int32)
        states = _products(rows, self.inner.to(rows.dtype), ends, expert)
        if self.gated:
            gate, value = states.chunk(2, -1)
            states = self.activation(gate) * value
        else:
            states = self.activation(states)
        return _products(states, self.outer.to(rows.dtype), ends, expert)


def _products(rows: Tensor, weights: Tensor, ends: Tensor, expert: Tensor) -> Tensor:
    """Rows [rows, in] times the matrix of their expert [experts, out, in], the groups of which end at `ends`.

    Where torch multiplies no groups (`GROUPED_ON`; in bfloat16, of widths that are no multiples of 8) every expert
    reads every row, since the host would have to wait for the sizes of the groups.
    """
    aligned = rows.dtype is torch.bfloat16 and not any(size % 8 for size in weights.shape[1:])
    if rows.device.type in GROUPED_ON or aligned:
        return F.grouped_mm(rows, weights.transpose(1, 2), offs=ends)
    found = rows.new_zeros(len(rows), weights.shape[1])
    for number, weight in enumerate(weights):
        found = torch.where((expert == number).unsqueeze(-1), F.linear(rows, weight), found)
    return found
