"""A feed-forward layer over the last rows of a text: the neural language model of Bengio et al. (JMLR 3, 2003)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workbench.core.options.bounds import Count, Word
from workbench.models.context import Context
from workbench.models.layers.lstm import check_in_order


class PrecedingLayer(nn.Module):
    """Feed-forward layer over a row and those before it (Bengio et al., JMLR 3, 2003, equation 1). Of the rows x_i and
    those before, 0 beyond the beginning of a sequence, it is

        tanh(H [x_i ; x_{i-1} ; ... ; x_{i-order+1}] + d)

    Other streams pass through.

    Args:
        stream: the stream's name.
        sizes: hidden size of every stream (given by the network).
        order: number of rows that are read; n - 1 of the paper's n.

    Raises:
        WorkbenchError: in a forward: as `workbench.models.layers.lstm.check_in_order`.
    """

    def __init__(self, stream: Word, sizes: dict[str, int], order: Count = 4) -> None:
        super().__init__()
        self.stream, self.order = stream, order
        self.reads = self.changes = (stream,)
        self.linear = nn.Linear(order * sizes[stream], sizes[stream])

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        if self.stream not in hidden:
            return hidden
        rows, layout = hidden[self.stream], context.layout(self.stream)
        check_in_order(self.stream, layout, "a layer over preceding rows")
        if context.keeps("keys") or context.keeps("rows"):
            known, whole = context.recall((self.stream,), rows)
        else:
            known, whole = rows, layout
        begins, behind = whole.offsets[:-1], whole.offsets[1:] - layout.offsets[1:]
        moves = torch.stack([begins, behind]).repeat_interleave(layout.offsets.diff(), 1, output_size=len(rows))
        places = torch.arange(len(rows), device=rows.device) + moves[1]
        read = [
            torch.where((places - back >= moves[0])[:, None], known[(places - back).clamp_min(0)], 0)
            for back in range(self.order)
        ]
        return {**hidden, self.stream: self.linear(torch.cat(read, -1)).tanh()}
