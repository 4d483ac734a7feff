"""The projector between an image encoder and a language model (LLaVA 1.5, arXiv:2310.03744, section 3.3)."""

from __future__ import annotations

from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Word
from workbench.models.context import Context
from workbench.models.feed_forward import ACTIVATIONS, Ungated


class ProjectorLayer(nn.Module):
    """Projector of LLaVA 1.5 (arXiv:2310.03744, section 3.3): the rows of a stream become W2 act(W1 x + b1) + b2, where
    x are rows of another stream, of another width, or W x + b (BLIP-2, arXiv:2301.12597, section 3.2). The transform
    `vision.projected` says which rows.

    Other streams pass through.

    Args:
        stream: the stream that is filled, as wide as the language model (`vision.projected`).
        to: the stream that is projected, as wide as the image encoder.
        sizes: hidden size of every stream (given by the network).
        activation: the function between the two maps; null: there is one map.
        bias: whether the maps have biases.
    """

    def __init__(
        self,
        stream: Word,
        to: Word,
        sizes: dict[str, int],
        activation: Ungated | None = "gelu",
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.stream, self.source = stream, to
        self.reads, self.changes = (stream, to), (stream,)
        self.activation = None if activation is None else ACTIVATIONS[activation]
        self.inner = None if activation is None else nn.Linear(sizes[to], sizes[stream], bias=bias)
        self.outer = nn.Linear(sizes[to if activation is None else stream], sizes[stream], bias=bias)

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        """
        Raises:
            WorkbenchError: the stream has no field `of`, which names the rows.
        """
        if self.stream not in hidden or self.source not in hidden:
            return hidden
        fields = context.fields(self.stream)
        if "of" not in fields:
            raise WorkbenchError(
                f"the layer vision.projector does not know which rows of {self.source!r} those of {self.stream!r} are: "
                "add the transform vision.projected with this stream"
            )
        rows = hidden[self.source].index_select(0, fields["of"])
        if self.inner is not None and self.activation is not None:
            rows = self.activation(self.inner(rows))
        return {**hidden, self.stream: self.outer(rows)}
