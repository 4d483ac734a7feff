"""Vectors from which sounds can be reconstructed, near those of the words (SpeechBERT, arXiv:1910.11559, section 2.2).

    L = sum over sounds k of [ mean_t (x_kt - y_kt)^2 + weight * mean |z_k - e(w_k)| ],    y_k = decoder(z_k)

z_k is the embedding of the frames x_k, e(w) the vector of the word in the table of tokens. The decoder is a GRU with
z_k as input at every frame. Means are over the frames of the sound and their numbers, or the vector's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import NotNegative, Size, Word
from workbench.models.embeddings.segments import SegmentsEmbedding
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput, Objective
from workbench.sequences.sequence import Rows, Sequence

if TYPE_CHECKING:
    from workbench.models.network import Network


class SegmentAutoencoder(Objective):
    """Autoencoder of speech segments (SpeechBERT, arXiv:1910.11559, section 2.2). It reconstructs sounds from their
    vectors, and moves these vectors towards those of the words.

    Args:
        weight_l1: of the distance to the words' vectors.
        inner_size: width of the decoder's states.
        learn_words: whether the words' vectors move too; the paper's are those of a trained BERT and stay.
        stream: the stream of the sounds, whose embedding is `segments`.
    """

    def __init__(
        self, weight_l1: NotNegative = 1.0, inner_size: Size = 256, learn_words: bool = False, stream: Word = "speech"
    ) -> None:
        self.weight_l1, self.inner_size, self.learn_words, self.stream = weight_l1, inner_size, learn_words, stream

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            rows = np.arange(len(sequence.fields(self.stream)["frames"]))
            labels = sequence.streams[self.stream]["said_ids"].copy()
            sequence.targets[self.name] = {"rows": Rows(self.stream, rows), "labels": labels}
        return {}

    def head(self, network: Network) -> Head:
        embedding = dict(network.embeddings.items()).get(self.stream)
        if not isinstance(embedding, SegmentsEmbedding):
            raise WorkbenchError(
                f"objective {self.name!r}: the embedding of the stream {self.stream!r} must be `segments`; found "
                f"{type(embedding).__name__}"
            )
        return SegmentAutoencoderHead(self, embedding.hidden_size, embedding.feature_size)


class SegmentAutoencoderHead(Head):
    """The decoder of sounds."""

    def __init__(self, options: SegmentAutoencoder, hidden_size: int, feature_size: int) -> None:
        super().__init__()
        self.stream, self.weight_l1, self.learn_words = options.stream, options.weight_l1, options.learn_words
        self.decoder = nn.GRU(hidden_size, options.inner_size, batch_first=True)
        self.output = nn.Linear(options.inner_size, feature_size)

    def forward(self, inputs: HeadInputs) -> LossOutput:
        embedding = inputs.network.embeddings[self.stream]
        assert isinstance(embedding, SegmentsEmbedding)
        stream = inputs.batch.streams[self.stream]
        fields, frames = stream.fields, stream.known("frames")
        vectors, count = embedding.encode({**fields, "frames": frames}), len(frames)
        if not count:
            return LossOutput(vectors.sum() + 0 * self.output.bias.sum(), {})
        features = fields["features"].float()
        longest = int(frames.max())
        states, _ = self.decoder(vectors[:, None].expand(-1, longest, -1))
        shown = torch.arange(longest, device=features.device) < fields["frames"][:, None]
        errors = (self.output(states).float() - features[:, :longest]).square().mean(-1).masked_fill(~shown, 0)
        rebuilt = (errors.sum(1) / fields["frames"]).sum()
        words = embedding.token(fields["said_ids"])
        apart = (vectors - (words if self.learn_words else words.detach())).abs().float().mean(-1).sum()
        metrics: dict[str, tuple[torch.Tensor | float, torch.Tensor | float]] = {
            "error": (rebuilt.detach(), float(count)),
            "distance": (apart.detach(), float(count)),
        }
        return LossOutput(rebuilt + self.weight_l1 * apart, metrics)
