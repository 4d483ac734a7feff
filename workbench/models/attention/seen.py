"""What attention reads, as a module of its own, so that an adapter may put something beside it."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from workbench.models.layout import Layout


class Keys(NamedTuple):
    """Keys and values, both [rows, heads, size], and how their rows divide into sequences."""

    keys: Tensor
    values: Tensor
    layout: Layout


class Seen(nn.Module):
    """The last thing that happens to keys and values before attention: nothing.

    Args:
        num_heads, head_size: theirs.
    """

    def __init__(self, num_heads: int, head_size: int) -> None:
        super().__init__()
        self.num_heads, self.head_size = num_heads, head_size

    def forward(self, seen: Keys) -> Keys:
        """`seen`, as it came."""
        return seen
