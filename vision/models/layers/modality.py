"""A learned vector for each stream that is added to its rows (ViLT, arXiv:2102.03334, equation 3)."""

from __future__ import annotations

from typing import Annotated

from annotated_types import MinLen
from torch import Tensor, nn

from vision.models.embeddings._rows import vector
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Word
from workbench.models.context import Context


class ModalityLayer(nn.Module):
    """Modality embedding (ViLT, arXiv:2102.03334, equation 3): h + t, with a learned vector t for each stream. It goes
    before the layers that join the streams. Other streams pass through.

    Args:
        streams: the streams that get a vector.
        sizes: hidden size of every stream (given by the network).
    """

    def __init__(self, streams: Annotated[list[Word], MinLen(1)], sizes: dict[str, int]) -> None:
        super().__init__()
        if len(set(streams)) < len(streams):
            raise WorkbenchError(f"streams = {', '.join(streams)}: a stream is named twice; name each once")
        self.reads = self.changes = tuple(streams)
        self.vectors = nn.ParameterDict({name: vector(sizes[name]) for name in streams})

    def forward(self, hidden: dict[str, Tensor], context: Context) -> dict[str, Tensor]:
        return {name: rows + self.vectors[name] if name in self.vectors else rows for name, rows in hidden.items()}
