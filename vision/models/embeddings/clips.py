"""Stored features of clips as rows of the `video` stream."""

from __future__ import annotations

from torch import Tensor, nn

from vision.models.embeddings._rows import field, hide, vector
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Dropout, Epsilon, Size
from workbench.sequences.sequence_checks import check_limits


class ClipsEmbedding(nn.Module):
    """Embedding of stored clip features of a video (UniVL, arXiv:2002.06353; CBT, arXiv:1906.05743). It is LN(W n(f) +
    position).

    A masked row's features are zero; `mask_vector` replaces them by a learned vector.

    Args:
        feature_size: numbers of a stored feature.
        max_positions: rows of the table of places.
        feature_norm: n is a LayerNorm (UniVL's code), else nothing.
        type_vector: a learned vector is added to every row, which distinguishes it from words in joint layers.
    """

    reached_by_some = ("mask",)

    def __init__(
        self,
        hidden_size: Size,
        feature_size: Size,
        *,
        max_positions: Count = 512,
        feature_norm: bool = False,
        type_vector: bool = False,
        mask_vector: bool = False,
        norm_eps: Epsilon = 1e-12,
        dropout: Dropout = 0.1,
    ) -> None:
        super().__init__()
        self.hidden_size, self.max_positions = hidden_size, max_positions
        self.feature_norm = nn.LayerNorm(feature_size, norm_eps) if feature_norm else nn.Identity()
        self.project = nn.Linear(feature_size, hidden_size)
        self.position = nn.Embedding(max_positions, hidden_size)
        self.type_vector = vector(hidden_size) if type_vector else None
        self.mask = vector(feature_size) if mask_vector else None
        self.norm = nn.LayerNorm(hidden_size, norm_eps)
        self.dropout = nn.Dropout(dropout)

    def normalise(self, features: Tensor) -> Tensor:
        """Features [rows, feature_size] of any type in the normalised form that the network reads and predicts."""
        normed: Tensor = self.feature_norm(features.to(self.project.weight.dtype))
        return normed

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """`features` [rows, feature_size], `position_ids` [rows], `masked` [rows] -> [rows, hidden_size].

        Raises:
            WorkbenchError: the features are of another size, or there are more clips than positions.
        """
        features = field(fields, "features", self)
        if features.shape[1] != self.project.in_features:
            raise WorkbenchError(
                f"video stream: the features have {features.shape[1]} numbers, the embedding's feature_size is "
                f"{self.project.in_features}; set feature_size to what the corpus holds"
            )
        positions = field(fields, "position_ids", self)
        if positions.device.type == "cpu":
            check_limits({"position_ids": positions}, {"position_ids": self.max_positions}, "a video")
        shown = hide(features.to(self.project.weight.dtype), fields.get("masked"), self.mask)
        hidden = self.project(self.normalise(shown)) + self.position(positions)
        if self.type_vector is not None:
            hidden = hidden + self.type_vector
        embedded: Tensor = self.dropout(self.norm(hidden))
        return embedded
