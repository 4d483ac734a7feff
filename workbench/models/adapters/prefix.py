"""Prefixes (prefix-tuning, Li and Liang, arXiv:2101.00190; P-tuning v2, Liu et al., arXiv:2110.07602)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workbench.errors import WorkbenchError
from workbench.models.adapter import SEEN, Adapter
from workbench.models.attention.seen import Keys
from workbench.models.layout import Layout, layout_of
from workbench.options.bounds import Heads, Size
from workbench.sequences.batch import Stream


class Prefix(Adapter):
    """Trained keys and values in front of those of each sequence (prefix-tuning, Li and Liang, arXiv:2101.00190;
    P-tuning v2, Liu et al., arXiv:2110.07602). The output of attention is softmax(q [P_k ; K]^T) [P_v ; V], with P_k
    and P_v [size, heads, head size].

    With `targets: [layers.*]` every attention of the layers has its own. They stand at the positions -size .. -1 and
    are seen by every row of the trunk; no row of a stream moves. Unlike other adapters a new prefix is not nothing: its
    rows take their share of the attention. The keys and values are trained as they are, as in P-tuning v2, and not made
    by a network as in prefix-tuning.

    Args:
        size: rows of the prefix.

    Raises:
        WorkbenchError: several texts are packed into a sequence; a prefix begins but one.
    """

    adapts = SEEN

    def __init__(self, num_heads: Heads, head_size: Size, size: Size = 16) -> None:
        super().__init__()
        self.keys = nn.Parameter(torch.zeros(size, num_heads, head_size))
        self.values = nn.Parameter(torch.zeros(size, num_heads, head_size))

    def initialise(self, scale: float) -> None:
        for rows in (self.keys, self.values):
            nn.init.normal_(rows, std=scale)

    def forward(self, given: Keys, made: Keys) -> Keys:
        if "doc" in made.layout.integers:
            raise WorkbenchError(
                "several texts are packed into a sequence, and a prefix begins but one; use a builder that gives each "
                "text a sequence of its own"
            )
        size = self.keys.shape[0]
        layout = made.layout.kept(made.layout, ("prefix", size), lambda: _prefixed(made.layout, size))
        return Keys(_before(self.keys, made.keys, layout), _before(self.values, made.values, layout), layout)


def _before(prefix: Tensor, rows: Tensor, layout: Layout) -> Tensor:
    return torch.cat([prefix.to(rows.dtype).repeat(len(layout.lengths), 1, 1), rows])


def _prefixed(layout: Layout, size: int) -> Layout:
    """The rows of a prefix for every sequence, then those of the layout."""
    count = len(layout.lengths)
    positions = torch.arange(-size, 0, device=layout.device).repeat(count)
    offsets = torch.arange(count + 1, device=layout.device) * size
    prefix = Stream({"position_ids": positions}, offsets, [size] * count)
    return layout_of([prefix, *layout.streams], torch.cat([positions, layout.restored(layout.index)]))
