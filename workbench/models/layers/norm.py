"""A norm at the end of a pre-norm stack (Xiong et al., arXiv:2002.04745; GPT-2)."""

from __future__ import annotations

from torch import Tensor, nn

from workbench.core.options.bounds import Epsilon, Word
from workbench.models.context import Context
from workbench.models.norms import NormKind, make_norm


class NormLayer(nn.Module):
    """Norm at the end of a pre-norm stack (Xiong et al., arXiv:2002.04745; GPT-2). It is norm(x) on the rows of one
    stream. Other streams pass through.

    Args:
        stream: the stream's name.
        sizes: hidden size of every stream (given by the network).
        norm: layer, rms, unbiased or affine.
        bias: whether it has one.
    """

    def __init__(
        self,
        stream: Word,
        sizes: dict[str, int],
        norm: NormKind = "layer",
        norm_eps: Epsilon = 1e-12,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.stream = stream
        self.reads = self.changes = (stream,)
        self.norm = make_norm(norm, sizes[stream], norm_eps, bias)

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        if self.stream not in hidden:
            return hidden
        return {**hidden, self.stream: self.norm(hidden[self.stream])}
