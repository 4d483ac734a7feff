"""The end of a network, as a module of its own, so that an adapter may go by all that the layers made."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from workbench.models.context import Context

States = dict[str, Tensor]


class Passed(NamedTuple):
    """What the layers of a network made of a batch: the streams before the first layer and after each."""

    hidden: list[States]
    context: Context


class End(nn.Module):
    """What a network gives: the streams after the last layer.

    Args:
        sizes: hidden size of every stream.
        num_layers: of the network.
    """

    def __init__(self, sizes: dict[str, int], num_layers: int) -> None:
        super().__init__()
        self.sizes, self.num_layers = sizes, num_layers

    def forward(self, passed: Passed) -> States:
        return passed.hidden[-1]
