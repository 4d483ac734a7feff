"""Adapting a network: what it has learnt stays as it is, and small modules beside it are trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import MinLen
from torch import Tensor, nn

from workbench.errors import WorkbenchError
from workbench.models.attention.seen import Keys, Seen
from workbench.models.end import End, Passed, States
from workbench.models.returns import STREAMS
from workbench.options.bounds import Name
from workbench.parts.build_context import named
from workbench.parts.calls import Returns, call


@dataclass(frozen=True)
class Adapts:
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


LINEAR = Adapts(
    nn.Linear,
    "linear map",
    lambda linear: {"in_size": linear.in_features, "out_size": linear.out_features},
    Returns(
        "a tensor of the shape that the map gave",
        lambda found, given, made: isinstance(found, Tensor) and found.shape == made.shape,
    ),
)
"""Linear maps: `given` [rows, in_size], `made` [rows, out_size]."""


def _behind(found: Any, given: Keys, made: Keys) -> bool:
    rows = made.keys.shape[0]
    return (
        isinstance(found, Keys)
        and found.keys.shape == found.values.shape == (found.layout.rows, *made.keys.shape[1:])
        and found.layout.rows >= rows
    )


SEEN = Adapts(
    Seen,
    "attention",
    lambda seen: {"num_heads": seen.num_heads, "head_size": seen.head_size},
    Returns("the keys and values that it was given, behind others if it likes", _behind),
    ("layers.*",),
)
"""What attention reads: `given` and `made` are the same `Keys`."""


def _same_streams(found: Any, given: Passed, made: States) -> bool:
    return STREAMS.holds(found, made) and found.keys() == made.keys()


END = Adapts(
    End,
    "network",
    lambda end: {"sizes": end.sizes, "num_layers": end.num_layers},
    Returns("the streams that it was given, each a tensor of the same shape", _same_streams),
    ("end",),
)
"""The network as a whole: `given` what its layers made (`Passed`), `made` the streams after the last one."""


@dataclass(frozen=True)
class Targets:
    """What a recipe says of an adapter beside its own options: the modules of the network that get one each, by
    patterns of their names (`layers.*.qkv`); by default `Adapts.targets`."""

    targets: Annotated[list[Name], MinLen(1)]


class Adapter(nn.Module):
    """Changes what one module of a network gives. A new one should change nothing: the network begins as it is.

    Of the sizes of the module (`Adapts.sizes`) it is given those that it asks for. Fresh weights are drawn as a layer's
    are; a method `initialise(scale)` draws others.
    """

    adapts: ClassVar[Adapts] = LINEAR

    def forward(self, given: Any, made: Any) -> Any:
        """What the module made of what it was given -> what it shall have made."""
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
