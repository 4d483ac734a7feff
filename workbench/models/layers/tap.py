"""A layer that changes nothing: it passes the streams that reach it to heads, under a name."""

from __future__ import annotations

from torch import Tensor, nn

from workbench.core.options.bounds import Word
from workbench.models.context import Context


class TapLayer(nn.Module):
    """Named point of a stack that changes nothing. Heads find the streams of this point in `NetworkOutput.taps`, and
    can run the layers behind it again on other rows (`HeadInputs.run`).

    Args:
        name: of the tap; each has its own in a network.
    """

    def __init__(self, name: Word) -> None:
        super().__init__()
        self.name = name
        self.reads = self.changes = ()

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        """`hidden`, unchanged."""
        context.taps[self.name] = hidden
        return hidden
