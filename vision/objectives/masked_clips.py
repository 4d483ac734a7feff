"""Masked clip modelling by contrast: which of all clips is the hidden one?

    L = - sum over hidden clips t of log [ exp(p_t . f_t / T) / sum over clips j of exp(p_t . f_j / T) ]
    p_t = U g(h_t) + b

f_j are the features of the clips of the batch, normalised by the embedding, p_t the prediction for the hidden clip,
g(h) = LayerNorm(gelu(W h + c)); T is 1 in the papers. CBT's L_visual (arXiv:1906.05743, equations 3 and 4: the
negatives are all other clips of the batch), and UniVL's conditioned masked frame model (arXiv:2002.06353, section 3.3),
which reads states that have seen the words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from vision.objectives._masked_regions import MaskedRegions, feature_field
from vision.objectives.mrfr import MrfrHead, input_projection
from workbench.core.options.bounds import Positive, Share, SomeShare, Word
from workbench.objectives._token_head import TokenLoss
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import GlobalBatchHead, LossOutput
from workbench.sequences.sequence import Sequence

if TYPE_CHECKING:
    from workbench.models.network import Network


class MaskedClips(MaskedRegions):
    """Masked clip modelling with a contrastive loss: a hidden clip is found among the clips of the global batch.

    Args:
        negatives: over the `step`, or only the `micro-batch`.
        tied: U is the transpose of the embedding's projection (UniVL's code), else a separate matrix.
        temperature: T. Products with features of a thousand numbers differ by tens at first; with a T of about the
            root of that size a short run begins near chance.
        tap: the layer `tap` whose states are read: those before video and words see each other (CBT); by default the
            last layer's.
        rate, zero, random, matched_only, stream: which rows are hidden, and how (`MaskedRegions`).
    """

    def __init__(
        self,
        rate: SomeShare = 0.15,
        zero: Share = 1.0,
        random: Share = 0.0,
        negatives: Literal["step", "micro-batch"] = "step",
        tied: bool = True,
        temperature: Positive = 1.0,
        tap: Word | None = None,
        matched_only: bool = True,
        stream: Word = "video",
    ) -> None:
        super().__init__(rate, zero, random, matched_only, stream)
        self.global_batch = negatives == "step"
        self.tied, self.tap, self.temperature = tied, tap, temperature

    def wanted(self, sequence: Sequence, rows: np.ndarray) -> dict[str, np.ndarray]:
        fields = sequence.streams[self.stream]
        return {"features": fields[feature_field(fields)][rows]}

    def head(self, network: Network) -> GlobalBatchHead:
        width = self.width(network, self.stream)
        return MaskedClipsHead(self, input_projection(network, self.stream).in_features, width)


class MaskedClipsHead(GlobalBatchHead):
    """Predicts the features of hidden clips, and compares them with all clips."""

    def __init__(self, options: MaskedClips, feature_size: int, hidden_size: int) -> None:
        super().__init__()
        self.stream, self.tap, self.temperature = options.stream, options.tap, options.temperature
        self.predicting = MrfrHead(feature_size, hidden_size, "mse", options.tied, options.stream)
        self.among = TokenLoss()

    def embed(self, inputs: HeadInputs) -> dict[str, Tensor]:
        """For every clip of the micro-batch [clips, feature_size]: its prediction (zeros if it is visible), its
        features, and whether it is hidden."""
        read, targets = inputs.read(), inputs.targets
        states = read.at(self.tap)
        stream = read.batch.streams.get(self.stream)
        if stream is None or not len(states.get(self.stream, ())):
            none = self.predicting.bias.new_zeros(0, len(self.predicting.bias))
            return {"predicted": none + self.predicting.bias, "features": none, "hidden": none.new_zeros(0).bool()}
        features = stream.fields["features"].to(self.predicting.bias.dtype)
        rows = targets.get("rows", torch.zeros(0, dtype=torch.long, device=features.device))
        if len(rows):
            features = features.index_copy(0, rows, targets["features"].to(features.dtype))
        normalise = getattr(read.network.embeddings[self.stream], "normalise", None)
        real = features if normalise is None else normalise(features)
        guessed = self.predicting.predict(read.network, self.predicting.transform(states[self.stream][rows]))
        predicted = torch.zeros_like(real, dtype=guessed.dtype).index_copy(0, rows, guessed)
        hidden = torch.zeros(len(real), dtype=torch.bool, device=real.device).index_fill(0, rows, True)
        return {"predicted": predicted.float(), "features": real.float(), "hidden": hidden}

    def loss(self, embedded: dict[str, Tensor], own: slice) -> LossOutput:
        predicted, real, hidden = embedded["predicted"], embedded["features"], embedded["hidden"]
        if not len(real[own]):
            return LossOutput(predicted.sum() * 0 + real.sum() * 0, {})
        answers = torch.where(hidden, torch.arange(len(real), device=real.device), -100)[own]
        with torch.autocast(real.device.type, enabled=False):
            scores = predicted[own] @ real.T / self.temperature
        loss, metrics, _ = self.among(scores, answers)
        return LossOutput(loss, metrics)
