"""Positions in a grid of image cells."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

Positions = Literal["1d", "2d"]


class GridPositions(nn.Module):
    """Learned positions of a grid's cells, found by their boxes: one table, or one for rows and one for columns."""

    def __init__(self, hidden_size: int, grid: int, positions: Positions) -> None:
        super().__init__()
        self.grid = grid
        self.tables = nn.ModuleList(
            [nn.Embedding(grid * grid, hidden_size)]
            if positions == "1d"
            else [nn.Embedding(grid, hidden_size), nn.Embedding(grid, hidden_size)]
        )

    def forward(self, boxes: Tensor) -> Tensor:
        """Boxes [rows, 4] of cells -> [rows, hidden_size]."""
        column, row = (boxes[:, :2] * self.grid).round().long().clamp(0, self.grid - 1).unbind(1)
        if len(self.tables) == 1:
            return self.tables[0](row * self.grid + column)
        return self.tables[0](row) + self.tables[1](column)
