"""Adapting a network: what it has learnt stays as it is, and small modules beside it are trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import MinLen
from torch import Tensor, nn

from workbench.errors import WorkbenchError
from workbench.options.bounds import Name
from workbench.parts.blame import named
from workbench.parts.calls import Returns, call

ADAPTED = Returns(
    "a tensor of the shape that the map gave",
    lambda found, given, made: isinstance(found, Tensor) and found.shape == made.shape,
)


@dataclass(frozen=True)
class Place:
    """What a recipe says of an adapter beside its own options: the linear maps of the network that get one each, by
    patterns of their names (`layers.*.qkv`)."""

    targets: Annotated[list[Name], MinLen(1)]


class Adapter(nn.Module):
    """Changes what one linear map of a network gives. A new one must change nothing: the network begins as it is.

    Of `in_size` and `out_size`, the widths of the map, it is given those that it asks for. Fresh weights are drawn as a
    layer's are; a method `initialise(scale)` draws others.
    """

    def forward(self, given: Tensor, made: Tensor) -> Tensor:
        """What the map made [rows, out_size] of what it was given [rows, in_size] -> what it shall have made."""
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def merge(self, linear: nn.Linear) -> None:
        """Let the map itself give what the two give together.

        Raises:
            WorkbenchError: that is no linear map.
        """
        raise WorkbenchError(
            f"{named(self)}: what this adapter does is no linear map, so no weights of the network's own shape do it, "
            "and it cannot be exported; use the run itself"
        )

    def act(self, module: nn.Module, inputs: tuple[Any, ...], made: Tensor) -> Tensor:
        """A forward hook of the map: a method, so that a copy of the network calls its own copy of the adapter."""
        return call(self, "", ADAPTED, inputs[0], made)
