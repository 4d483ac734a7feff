"""What attention reads, as a module of its own, so that an adapter may put something next to it."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from workbench.models.layout import CacheLayout, Layout


class KeyValues(NamedTuple):
    """Keys and values, both [rows, heads, size], and how their rows divide into sequences."""

    keys: Tensor
    values: Tensor
    layout: Layout

    def together(self) -> KeyValues:
        """The same where rows of sequences stand apart (`CacheLayout`), one sequence after another."""
        if not isinstance(self.layout, CacheLayout):
            return self
        together = self.layout.contiguous
        return KeyValues(together(self.keys), together(self.values), self.layout.together)


class KeyValueHook(nn.Module):
    """The last thing that happens to keys and values before attention: nothing.

    Args:
        num_heads, head_size: theirs.
    """

    def __init__(self, num_heads: int, head_size: int) -> None:
        super().__init__()
        self.num_heads, self.head_size = num_heads, head_size

    @property
    def adapted(self) -> bool:
        """Whether an adapter puts others before them, for which the rows of a sequence have to stand together."""
        return bool(self._forward_hooks)

    def forward(self, seen: KeyValues) -> KeyValues:
        """`seen`, as it came."""
        return seen
