"""A small model with a loss, for optimizers."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.map = nn.Linear(4, 3)
        self.grid = nn.Parameter(torch.randn(2, 3, 4))

    def loss(self, step: int) -> Tensor:
        rows = torch.randn(5, 4, generator=torch.Generator().manual_seed(step))
        return (self.map(rows) - rows @ (self.grid[0] + 2 * self.grid[1].tanh()).T).square().sum()


def train(model: Model, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        model.loss(step).backward()
        optimizer.step()
