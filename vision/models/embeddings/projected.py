"""The first states of rows that a projector fills."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Size


class ProjectedEmbedding(nn.Module):
    """Zeros, in the place of which the layer `vision.projector` puts the projected rows of another stream. The
    transform `vision.projected` makes the rows.

    Args:
        hidden_size: the width of the projected rows.
    """

    def __init__(self, hidden_size: Size) -> None:
        super().__init__()
        self.hidden_size = hidden_size

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """`of` [rows], of which only the length is used -> zeros [rows, hidden_size].

        Raises:
            WorkbenchError: the stream has no such field.
        """
        if "of" not in fields:
            raise WorkbenchError(
                f"the embedding of projected rows needs the field of, the stream has {', '.join(fields)}: add the "
                "transform vision.projected with this stream"
            )
        return torch.zeros(len(fields["of"]), self.hidden_size, device=fields["of"].device)
