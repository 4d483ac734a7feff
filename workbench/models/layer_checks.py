"""Checks of the return values of the components of a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from workbench.components.calls import Returns


def _fits(found: Any, hidden: Mapping[str, Tensor], *_: Any) -> bool:
    """Whether a layer returns streams with as many rows, as wide as its input. It may end a stream by leaving it
    out."""
    return (
        isinstance(found, dict)
        and (bool(found) or not hidden)
        and all(
            isinstance(rows, Tensor) and (name not in hidden or rows.shape == hidden[name].shape)
            for name, rows in found.items()
        )
    )


STREAMS = Returns("a dict of streams, each a tensor [rows, hidden_size] as the layer got it", _fits, kind=dict)


def _is_term(found: Any, pair: Any, *_: Any) -> bool:
    batch, heads, rows, _ = pair.q.shape
    return (
        isinstance(found, Tensor)
        and found.is_floating_point()
        and found.ndim == 4
        and found.shape[0] in (1, batch)
        and found.shape[1:] == (heads, rows, pair.k.shape[2])
    )


TERM = Returns(
    "a tensor [batch or 1, heads, queries, keys] of numbers that are added to the scores", _is_term, kind=Tensor
)


def rows_of_width(size: int) -> Returns:
    """The contract of an embedding of this hidden size."""
    return Returns(
        f"a tensor [rows, hidden_size] with hidden_size = {size}",
        lambda found, *_: isinstance(found, Tensor) and found.ndim == 2 and found.shape[1] == size,
        kind=Tensor,
    )


def vectors_of(size: int) -> Returns:
    """The contract of a pooler's vectors of this width."""
    return Returns(
        f"a tensor [sequences, {size}]",
        lambda found, rows, stream: isinstance(found, Tensor) and found.shape == (len(stream.lengths), size),
        kind=Tensor,
    )
