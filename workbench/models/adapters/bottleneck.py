"""Bottleneck adapters (Houlsby et al., arXiv:1902.00751; Pfeiffer et al., arXiv:2005.00247)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from workbench.models.adapter import Adapter
from workbench.models.blocks import activation
from workbench.options.bounds import Size


class Bottleneck(Adapter):
    """Bottleneck adapter after a linear layer (Houlsby et al., arXiv:1902.00751; Pfeiffer et al., arXiv:2005.00247).
    Its output is y + U f(D y + b) + c for the layer's output y, with D [size, out] and U [out, size]. U and c begin at
    0.

    Houlsby's has one at the end of attention and of the feed-forward network (`targets: [layers.*.output,
    layers.*.outer]`), Pfeiffer's only the second.

    Args:
        size: width of the bottleneck.
        function: the activation f.
    """

    def __init__(
        self, out_size: Size, size: Size = 64, function: Literal["gelu", "gelu_tanh", "relu", "tanh"] = "gelu"
    ) -> None:
        super().__init__()
        self.down = nn.Linear(out_size, size)
        self.up = nn.Linear(size, out_size)
        self.function = activation(function)

    def initialise(self, scale: float) -> None:
        nn.init.normal_(self.down.weight, std=scale)
        for zero in (self.down.bias, self.up.weight, self.up.bias):
            nn.init.zeros_(zero)

    def forward(self, given: Tensor, made: Tensor) -> Tensor:
        return made + self.up(self.function(self.down(made)))
