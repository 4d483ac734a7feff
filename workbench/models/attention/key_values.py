"""The keys and values of attention as the output of a module of its own, so that an adapter can add others."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from workbench.models.layout import CacheLayout, Layout


class KeyValues(NamedTuple):
    """Keys and values, both [rows, heads, size], and the division of their rows into sequences."""

    keys: Tensor
    values: Tensor
    layout: Layout

    def together(self) -> KeyValues:
        """The same with one sequence after another, where the rows of sequences are stored apart (`CacheLayout`)."""
        if not isinstance(self.layout, CacheLayout):
            return self
        together = self.layout.contiguous
        return KeyValues(together(self.keys), together(self.values), self.layout.together)


class KeyValueHook(nn.Module):
    """The last module that keys and values pass before attention; it returns them unchanged.

    Args:
        num_heads, head_size: those of the keys, which may be fewer than those of the queries.
    """

    def __init__(self, num_heads: int, head_size: int) -> None:
        super().__init__()
        self.num_heads, self.head_size = num_heads, head_size

    @property
    def adapted(self) -> bool:
        """Whether an adapter puts others before them, for which the rows of a sequence must be consecutive."""
        return bool(self._forward_hooks)

    def forward(self, seen: KeyValues) -> KeyValues:
        """`seen`, unchanged."""
        return seen
