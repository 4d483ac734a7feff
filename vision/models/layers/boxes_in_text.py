"""Early fusion: the vectors of boxes are added to the words that refer to them (B2T2, arXiv:1908.05054).

    x_t = x_t + sum of v_i over the boxes i that token t refers to

The transform `vision.boxes_in_text` defines the references: a token has at most one box. The layers after this one read
only the text.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Word
from workbench.models.context import Context


class BoxesInTextLayer(nn.Module):
    """Early fusion of boxes into words (B2T2, arXiv:1908.05054): the vectors of boxes are added to the words that refer
    to them. It is the first layer of a stack over words, and has no weights.

    Args:
        stream, image: of the words, and of the boxes, of one width.
    """

    def __init__(self, sizes: dict[str, int], stream: Word = "text", image: Word = "image") -> None:
        super().__init__()
        if sizes[stream] != sizes[image]:
            raise WorkbenchError(
                f"BoxesInText: {stream} has the width {sizes[stream]}, "
                f"{image} {sizes[image]}; they must be equal, as the vectors of boxes are added to those of words"
            )
        self.stream, self.image = stream, image
        self.reads, self.changes = (stream, image), (stream,)

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        if self.stream not in hidden or self.image not in hidden:
            return hidden
        words, fields = hidden[self.stream], context.fields(self.stream)
        if "box" not in fields:
            raise WorkbenchError(
                f"BoxesInText: no words of {self.stream!r} have references to boxes; add the transform "
                "vision.boxes_in_text to the sequence"
            )
        nothing_last = F.pad(hidden[self.image], (0, 0, 0, 1))  # row -1, for words without a reference
        return {**hidden, self.stream: words + nothing_last[fields["box"]].to(words.dtype)}
