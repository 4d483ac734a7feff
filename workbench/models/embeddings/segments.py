"""Stretches of sound as rows of a stream: one vector each (SpeechBERT, Chuang et al., arXiv:1910.11559, section 2.2).

    z = V [forward GRU's last state ; backward GRU's last state] + c,    row = LN(z + position + type)

A row whose token (`input_ids`) differs from the spoken one (`said_ids`) has that token's vector instead of z: so masked
language modelling masks sounds as it masks words.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Dropout, Epsilon, Size
from workbench.models.permutation import inverse_of, select
from workbench.sequences.sequence_checks import check_limits
from workbench.sequences.transfer import integers_on_device


class SegmentsEmbedding(nn.Module):
    """Embedding of speech segments, one vector for each stretch of sound (SpeechBERT, Chuang et al., arXiv:1910.11559,
    section 2.2). A recurrent encoder reads the frames of each row.

    Args:
        vocab_size: rows of the table of tokens (given: the tokenizer's size); tie it to the text's.
        feature_size: numbers of a frame.
        inner_size: width of the recurrent states, in each direction.
        max_positions: rows of the table of positions.
    """

    by_token = ("token.weight",)
    on_host = ("frames",)

    def __init__(
        self,
        hidden_size: Size,
        vocab_size: Count,
        feature_size: Size,
        inner_size: Size = 256,
        max_positions: Count = 512,
        norm_eps: Epsilon = 1e-12,
        dropout: Dropout = 0.1,
    ) -> None:
        super().__init__()
        self.hidden_size, self.feature_size, self.max_positions = hidden_size, feature_size, max_positions
        self.token = nn.Embedding(vocab_size, hidden_size)
        self.position = nn.Embedding(max_positions, hidden_size)
        self.type_vector = nn.Parameter(torch.randn(hidden_size) * 0.02)
        self.encoder = nn.GRU(feature_size, inner_size, batch_first=True, bidirectional=True)
        self.project = nn.Linear(2 * inner_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size, norm_eps)
        self.dropout = nn.Dropout(dropout)
        self.limits = {"input_ids": vocab_size, "position_ids": max_positions}

    def encode(self, fields: dict[str, Tensor]) -> Tensor:
        """`features` [rows, max_frames, feature_size] and `frames` [rows] -> the sounds' vectors [rows, hidden_size].

        Raises:
            WorkbenchError: the frames are of another size.
        """
        features, frames = fields["features"].to(self.project.weight.dtype), fields["frames"]
        if features.shape[-1] != self.feature_size:
            raise WorkbenchError(
                f"speech stream: a frame has {features.shape[-1]} numbers, the embedding's feature_size is "
                f"{self.feature_size}; set feature_size to that of the corpus"
            )
        if not len(features):
            return self.project(features.new_zeros(0, self.project.in_features))
        frames, order = torch.sort(frames.cpu(), descending=True)
        longest_first, back = integers_on_device([order, inverse_of(order)], features.device)
        packed = pack_padded_sequence(select(features, longest_first, back), frames, batch_first=True)
        last: Tensor = self.encoder(packed)[1]
        return self.project(select(torch.cat([last[0], last[1]], 1), back, longest_first))

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """Fields as of the builder `spoken_words` -> [rows, hidden_size]."""
        if fields["input_ids"].device.type == "cpu":
            check_limits(fields, self.limits, "a sequence")
        changed = (fields["input_ids"] != fields["said_ids"])[:, None]
        sounds = torch.where(changed, self.token(fields["input_ids"]), self.encode(fields))
        embedded: Tensor = self.dropout(self.norm(sounds + self.position(fields["position_ids"]) + self.type_vector))
        return embedded
