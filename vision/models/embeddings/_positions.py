"""Positions in a grid of image cells."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError

Positions = Literal["1d", "2d"]


class GridPositions(nn.Module):
    """Learned positions of a grid's cells, found by their boxes: one table, or one for rows and one for columns.

    With `interpolate` cells may be those of any other grid: its corners are the table's corners, and the values between
    them are interpolated bilinearly from the four nearest cells (ViLT, arXiv:2102.03334, section 4.1).
    """

    def __init__(self, hidden_size: int, grid: int, positions: Positions, interpolate: bool = False) -> None:
        super().__init__()
        if interpolate and positions != "1d":
            raise WorkbenchError(f"interpolate: true, positions = {positions!r}; allowed with interpolate: '1d'")
        self.grid = grid
        self.interpolate = interpolate
        self.tables = nn.ModuleList(
            [nn.Embedding(grid * grid, hidden_size)]
            if positions == "1d"
            else [nn.Embedding(grid, hidden_size), nn.Embedding(grid, hidden_size)]
        )

    def forward(self, boxes: Tensor) -> Tensor:
        """Boxes [rows, 4] of cells -> [rows, hidden_size]."""
        if self.interpolate:
            return self._between(boxes)
        column, row = (boxes[:, :2] * self.grid).round().long().clamp(0, self.grid - 1).unbind(1)
        if len(self.tables) == 1:
            return self.tables[0](row * self.grid + column)
        return self.tables[0](row) + self.tables[1](column)

    def _between(self, boxes: Tensor) -> Tensor:
        """As `forward`, for cells of any grid, which follow from the box: its sides are those of a cell."""
        corners = boxes[:, :2].double()
        span = 1 - (boxes[:, 2:].double() - corners)  # from the first cell's corner to the last one's
        last = self.grid - 1
        place = torch.where(span > 1e-6, corners / span.clamp(min=1e-6), 0).clamp(0, 1) * last
        low = place.floor().clamp(max=max(last - 1, 0)).long()
        high, share = (low + 1).clamp(max=last), (place - low).to(boxes.dtype)
        rows = boxes.new_zeros(1)
        for y, down in ((low[:, 1], 1 - share[:, 1]), (high[:, 1], share[:, 1])):
            for x, right in ((low[:, 0], 1 - share[:, 0]), (high[:, 0], share[:, 0])):
                rows = rows + (down * right)[:, None] * self.tables[0](y * self.grid + x)
        return rows
