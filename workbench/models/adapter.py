"""Adapters of a network: the network's weights are frozen, and small additional modules are trained.

The end of a network is a module of its own, so that an adapter can read the states of all layers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from annotated_types import MinLen
from torch import Tensor, nn

from workbench.components.build_context import named
from workbench.components.calls import Returns, call
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Name
from workbench.models.attention.key_values import KeyValueHook, KeyValues
from workbench.models.context import Context
from workbench.models.layer_checks import STREAMS
from workbench.models.tensor_cut import Blocks, TensorCuts

States = dict[str, Tensor]


class LayerStates(NamedTuple):
    """The states of a network's layers for a batch: the streams before the first layer and after each."""

    hidden: list[States]
    context: Context


class NetworkEnd(nn.Module):
    """The output of a network: the streams after the last layer.

    Args:
        sizes: hidden size of every stream.
        num_layers: of the network.
    """

    def __init__(self, sizes: dict[str, int], num_layers: int) -> None:
        super().__init__()
        self.sizes, self.num_layers = sizes, num_layers

    def forward(self, passed: LayerStates) -> States:
        return passed.hidden[-1]


@dataclass(frozen=True)
class AdapterPlace:
    """A kind of modules of a network to which adapters can be added.

    Attributes:
        kind: their class.
        words: their name in messages.
        sizes: the sizes that an adapter may request.
        returns: the contract of an adapter's output, given the module's input and output.
        targets: patterns of their names, where the recipe has none.
    """

    kind: type[nn.Module]
    words: str
    sizes: Callable[[Any], dict[str, Any]]
    returns: Returns
    targets: tuple[str, ...] = ()


LINEAR = AdapterPlace(
    nn.Linear,
    "linear map",
    lambda linear: {"in_size": linear.in_features, "out_size": linear.out_features},
    Returns(
        "a tensor of the shape of the layer's output",
        lambda found, inputs, outputs: isinstance(found, Tensor) and found.shape == outputs.shape,
        kind=Tensor,
    ),
)
"""Linear layers: `inputs` [rows, in_size], `outputs` [rows, out_size]."""

WEIGHTS = AdapterPlace(nn.Linear, "linear map", lambda linear: {"linear": linear}, LINEAR.returns)
"""Linear layers whose weights an adapter reads in another form (`WeightAdapter`)."""


def _is_longer(found: Any, inputs: KeyValues, outputs: KeyValues) -> bool:
    rows = outputs.keys.shape[0]
    return (
        isinstance(found, KeyValues)
        and found.keys.shape == found.values.shape == (found.layout.rows, *outputs.keys.shape[1:])
        and found.layout.rows >= rows
    )


KEY_VALUES = AdapterPlace(
    KeyValueHook,
    "attention",
    lambda seen: {"num_heads": seen.num_heads, "head_size": seen.head_size},
    Returns("the given keys and values, after any additional ones", _is_longer, kind=KeyValues),
    ("layers.*",),
)
"""The keys and values of attention: `inputs` and `outputs` are the same `KeyValues`."""


def _is_same_streams(found: Any, inputs: LayerStates, outputs: States) -> bool:
    return STREAMS.holds(found, outputs) and found.keys() == outputs.keys()


END = AdapterPlace(
    NetworkEnd,
    "network",
    lambda end: {"sizes": end.sizes, "num_layers": end.num_layers},
    Returns("the given streams, each a tensor of the same shape", _is_same_streams, kind=dict),
    ("end",),
)
"""The network as a whole: `inputs` are the states of its layers (`LayerStates`), `outputs` the streams after the last
one."""


@dataclass(frozen=True)
class Targets:
    """The entry `targets` of an adapter in a recipe: the modules of the network that get one each, by patterns of their
    names (`layers.*.qkv`); by default `AdapterPlace.targets`."""

    targets: Annotated[list[Name], MinLen(1)]


class Adapter(nn.Module):
    """Changes the output of one module of a network. A fresh adapter should return the output unchanged.

    It gets those sizes of the module (`AdapterPlace.sizes`) that its `__init__` requests. Fresh weights are drawn as a
    layer's are; a method `initialise(scale)` draws others.
    """

    adapts: ClassVar[AdapterPlace] = LINEAR

    def forward(self, inputs: Any, outputs: Any) -> Any:
        """The input and the output of the module -> the new output."""
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def cuts_at(self, place: Literal["columns", "rows", "heads"], blocks: Blocks) -> TensorCuts:
        """The cuts of the adapter where tensor parallelism cuts its module.

        Args:
            place: the module is a linear layer of which the outputs (columns) or the inputs (rows) are cut, or the keys
                and values of some heads.
            blocks: of the cut dimension (`workbench.models.tensor_cut.CutDim`).

        Raises:
            WorkbenchError: it cannot be cut.
        """
        raise WorkbenchError(
            f"the adapter {named(self)} changes a module that tensor parallelism cuts, and does not state how it is "
            "cut itself (`cuts_at`); choose other targets, or set train.parallel.tensor: 1"
        )

    def merge(self, module: Any) -> str | None:
        """Merge the adapter into the weights of the module. Returns in words what of its effect these cannot have, or
        None.

        Raises:
            WorkbenchError: it has no form as weights.
        """
        raise WorkbenchError(
            f"{named(self)} is no linear map, so it cannot be merged into weights of the network's own shape, and the "
            "network cannot be exported; use the run itself"
        )

    def act(self, module: nn.Module, inputs: tuple[Any, ...], made: Any) -> Any:
        """A forward hook of the module: a method, so that a copy of the network calls its own copy of the adapter."""
        return call(self, "", self.adapts.returns, inputs[0], made)


class WeightAdapter(Adapter, ABC):
    """Base of adapters that read the weights of a linear layer in another form: pruned, rounded. The weights themselves
    stay as they are, and are trained in a network with `adapted: trained`. The output is computed anew from the inputs,
    so such an adapter is the first of its layer, unless it says that it `follows` others.

    Args:
        linear: the layer, which stays where it is in the network.
    """

    adapts = WEIGHTS

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.__dict__["_linear"] = (linear,)  # no child of its own

    @property
    def linear(self) -> nn.Linear:
        found: nn.Linear = self.__dict__["_linear"][0]
        return found

    @property
    def follows(self) -> bool:
        """Whether it changes the output that it is given, and so keeps the effect of adapters before it."""
        return False

    @abstractmethod
    def weight(self) -> Tensor:
        """The weights [out_size, in_size] that the layer computes with."""

    def forward(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        return F.linear(inputs, self.weight(), self.linear.bias)

    @torch.no_grad()
    def merge(self, module: nn.Linear) -> str | None:
        module.weight.copy_(self.weight())
        return None
