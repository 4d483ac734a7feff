"""A stack beside the network (K-Adapter, Wang et al., arXiv:2002.01808, section 3)."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Unpack

import torch
from annotated_types import MinLen
from torch import Tensor, nn

from workbench.errors import WorkbenchError
from workbench.models.adapter import END, Adapter
from workbench.models.context import Context
from workbench.models.end import Passed, States
from workbench.models.initialisation import initialise
from workbench.models.layers.self import Self
from workbench.models.sublayers import BlockOptions
from workbench.options.bounds import CountOrZero, Heads, Size, Word


class AdapterLayer(nn.Module):
    """x + U T(D x), with `depth` Transformer layers T between the projections D and U."""

    def __init__(
        self, stream: str, hidden_size: int, size: int, depth: int, num_heads: int, options: BlockOptions
    ) -> None:
        super().__init__()
        self.stream = stream
        self.down = nn.Linear(hidden_size, size)
        self.layers = nn.ModuleList([Self(stream, {stream: size}, num_heads, **options) for _ in range(depth)])
        self.up = nn.Linear(size, hidden_size)

    def forward(self, rows: Tensor, context: Context) -> Tensor:
        hidden = {self.stream: self.down(rows)}
        for layer in self.layers:
            hidden = layer(hidden, context)
        return rows + self.up(hidden[self.stream])


class Side(Adapter):
    """Transformer layers next to a frozen network, which read its hidden states (K-Adapter, Wang et al.,
    arXiv:2002.01808). The i-th adapter layer reads the states after layer `after[i]`, plus the output of the adapter
    layer before it. The output is W [h ; s] + b, with the last states h of the network and s of the adapter layers. W
    begins as [I ; 0] and b at 0, so a fresh adapter returns the network's output unchanged.

    The paper says that an adapter layer gets the two concatenated; its published code adds them, and so does this.
    Heads read rows of the network's own width, so W is here, where theirs begin with it. Several such stacks are
    several entries of `adapt`; one that is to stay is named in `train.freeze`.

    Args:
        stream: whose rows it reads.
        after: numbers of layers, counted from 1; 0 stands for the embedded rows.
        size: width of the Transformer layers.
        depth: how many of them are in an adapter layer.
        options: of these layers, `workbench.models.sublayers.BlockOptions`.

    Raises:
        WorkbenchError: layers that the network does not have, or not in their order.
    """

    adapts = END

    def __init__(
        self,
        stream: Word,
        after: Annotated[list[CountOrZero], MinLen(1)],
        sizes: dict[str, int],
        num_layers: int,
        size: Size = 768,
        depth: Size = 2,
        num_heads: Heads = 12,
        **options: Unpack[BlockOptions],
    ) -> None:
        super().__init__()
        if after[-1] > num_layers or any(first >= second for first, second in pairwise(after)):
            raise WorkbenchError(f"after = {after}; allowed: rising numbers from 0 to {num_layers}, the last layer's")
        self.stream, self.after = stream, after
        hidden_size = sizes[stream]
        self.layers = nn.ModuleList([AdapterLayer(stream, hidden_size, size, depth, num_heads, options) for _ in after])
        self.combine = nn.Linear(2 * hidden_size, hidden_size)

    def initialise(self, scale: float) -> None:
        initialise(self.layers, scale)
        nn.init.eye_(self.combine.weight)
        nn.init.zeros_(self.combine.bias)

    def forward(self, given: Passed, made: States) -> States:
        if self.stream not in made:
            return made
        side = torch.zeros_like(made[self.stream])
        for number, layer in zip(self.after, self.layers, strict=True):
            side = layer(given.hidden[number][self.stream] + side, given.context)
        return {**made, self.stream: self.combine(torch.cat([made[self.stream], side], -1))}
