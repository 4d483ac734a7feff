"""One norm for several streams, at the end of a pre-norm stack of `joint` layers (ViLT, arXiv:2102.03334)."""

from __future__ import annotations

from typing import Annotated

from annotated_types import MinLen
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Epsilon, Word
from workbench.models.context import Context
from workbench.models.norms import NormKind, make_norm


class JointNormLayer(nn.Module):
    """One norm for several streams, at the end of a pre-norm stack of `joint` layers (ViLT, arXiv:2102.03334). It is
    norm(x) on the rows of each stream, with the same weights. Other streams pass through.

    Args:
        streams: their names; all have one hidden size.
        sizes: hidden size of every stream (given by the network).
        norm: layer, rms, unbiased or affine.
        bias: whether it has one.

    Raises:
        WorkbenchError: the streams have several widths.
    """

    def __init__(
        self,
        streams: Annotated[list[Word], MinLen(1)],
        sizes: dict[str, int],
        norm: NormKind = "layer",
        norm_eps: Epsilon = 1e-12,
        bias: bool = True,
    ) -> None:
        super().__init__()
        widths = {name: sizes[name] for name in streams}
        if len(set(widths.values())) > 1:
            raise WorkbenchError(f"streams of several widths have no norm in common: {widths}; give each a `norm`")
        self.reads = self.changes = tuple(streams)
        self.norm = make_norm(norm, next(iter(widths.values())), norm_eps, bias)

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        return {name: self.norm(rows) if name in self.reads else rows for name, rows in hidden.items()}
