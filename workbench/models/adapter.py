"""Adapting a network: what it has learned stays as it is, and small modules next to it are trained.

The end of a network, as a module of its own, so that an adapter may go by all that the layers made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

from annotated_types import MinLen
from torch import Tensor, nn

from workbench.components.build_context import named
from workbench.components.calls import Returns, call
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Name
from workbench.models.attention.key_values import KeyValueHook, KeyValues
from workbench.models.context import Context
from workbench.models.layer_checks import STREAMS

States = dict[str, Tensor]


class LayerStates(NamedTuple):
    """What the layers of a network built from a batch: the streams before the first layer and after each."""

    hidden: list[States]
    context: Context


class NetworkEnd(nn.Module):
    """What a network gives: the streams after the last layer.

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
    """What modules of a network an adapter stands at.

    Attributes:
        kind: their class.
        words: what they are called.
        sizes: what an adapter of one may ask for.
        returns: what an adapter must return, given what the module was given and what it made.
        targets: patterns of their names, where the recipe says none.
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
        "a tensor of the shape that the map gave",
        lambda found, given, made: isinstance(found, Tensor) and found.shape == made.shape,
        kind=Tensor,
    ),
)
"""Linear maps: `given` [rows, in_size], `made` [rows, out_size]."""


def _is_longer(found: Any, given: KeyValues, made: KeyValues) -> bool:
    rows = made.keys.shape[0]
    return (
        isinstance(found, KeyValues)
        and found.keys.shape == found.values.shape == (found.layout.rows, *made.keys.shape[1:])
        and found.layout.rows >= rows
    )


KEY_VALUES = AdapterPlace(
    KeyValueHook,
    "attention",
    lambda seen: {"num_heads": seen.num_heads, "head_size": seen.head_size},
    Returns("the keys and values that it was given, behind others if it likes", _is_longer, kind=KeyValues),
    ("layers.*",),
)
"""What attention reads: `given` and `made` are the same `KeyValues`."""


def _is_same_streams(found: Any, given: LayerStates, made: States) -> bool:
    return STREAMS.holds(found, made) and found.keys() == made.keys()


END = AdapterPlace(
    NetworkEnd,
    "network",
    lambda end: {"sizes": end.sizes, "num_layers": end.num_layers},
    Returns("the streams that it was given, each a tensor of the same shape", _is_same_streams, kind=dict),
    ("end",),
)
"""The network as a whole: `given` what its layers made (`LayerStates`), `made` the streams after the last one."""


@dataclass(frozen=True)
class Targets:
    """What a recipe says of an adapter next to its own options: the modules of the network that get one each, by
    patterns of their names (`layers.*.qkv`); by default `AdapterPlace.targets`."""

    targets: Annotated[list[Name], MinLen(1)]


class Adapter(nn.Module):
    """Changes what one module of a network gives. A new one should change nothing: the network begins as it is.

    Of the sizes of the module (`AdapterPlace.sizes`) it is given those that it asks for. Fresh weights are drawn as a
    layer's are; a method `initialise(scale)` draws others.
    """

    adapts: ClassVar[AdapterPlace] = LINEAR

    def forward(self, given: Any, made: Any) -> Any:
        """What the module built from what it was given -> what it shall have made."""
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def merge(self, module: Any) -> None:
        """Let the module itself give what the two give together.

        Raises:
            WorkbenchError: no weights of it do that.
        """
        raise WorkbenchError(
            f"{named(self)}: what this adapter does is no linear map, so no weights of the network's own shape do it, "
            "and it cannot be exported; use the run itself"
        )

    def act(self, module: nn.Module, inputs: tuple[Any, ...], made: Any) -> Any:
        """A forward hook of the module: a method, so that a copy of the network calls its own copy of the adapter."""
        return call(self, "", self.adapts.returns, inputs[0], made)
