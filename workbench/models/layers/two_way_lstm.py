"""Two LSTMs that do not see each other: the layer of ELMo (Peters et al., arXiv:1802.05365, section 3.1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Dropout, Size, Word
from workbench.models.context import Context
from workbench.models.dropout import dropout
from workbench.models.layers.lstm import LstmLayer


class TwoWayLstmLayer(nn.Module):
    """Two LSTMs over halves of the columns of a stream (ELMo, arXiv:1802.05365). The first half is read forward, the
    second backward. So the first half of a row knows the rows before it alone, and the second those behind it, in any
    number of layers. Other streams pass through.

    Args:
        stream: the stream's name.
        sizes: hidden size of every stream (given by the network).
        cells: width of the states c of each LSTM, where h is a projection of them.
        residual: whether its input is added to its output.
        dropout: of the rows that it reads.

    Raises:
        WorkbenchError: the stream's width is odd, or as `lstm`.
    """

    def __init__(
        self,
        stream: Word,
        sizes: dict[str, int],
        cells: Size | None = None,
        residual: bool = False,
        dropout: Dropout = 0.0,
    ) -> None:
        super().__init__()
        if sizes[stream] % 2:
            raise WorkbenchError(f"the width of {stream} is {sizes[stream]}; allowed: even ones, a half each direction")
        self.stream, self.residual = stream, residual
        self.reads = self.changes = (stream,)
        half = {stream: sizes[stream] // 2}
        self.ahead = LstmLayer(stream, half, cells=cells)
        self.back = LstmLayer(stream, half, cells=cells, direction="backward")
        self.dropout = dropout

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        if self.stream not in hidden:
            return hidden
        rows = hidden[self.stream]
        halves = zip((self.ahead, self.back), dropout(rows, self.dropout, self.training).chunk(2, -1), strict=True)
        made = torch.cat([layer({self.stream: half}, context)[self.stream] for layer, half in halves], -1)
        return {**hidden, self.stream: rows + made if self.residual else made}
