"""Contrast of pairs that layers have read jointly: does this text belong to the video, or another one?

    L = - sum over pairs (t, v) of log [ exp(s(t, v)) / (exp(s(t, v)) + sum over t' in N of exp(s(t', v))) ]

s is a linear map of the pooled state of the text, which has seen the video. With `exchange: text` the negatives are
other texts of the micro-batch with the same video: CBT's L_cross, where exp(s) estimates the mutual information of the
two (arXiv:1906.05743, equation 5). With `exchange: video` they are other videos with the same text: UniVL's alignment
(arXiv:2002.06353, section 3.3). The pairs are combined where text and video have not seen each other yet: the layers
after that `tap` run again on them.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vision.objectives._comparing import Matching, MatchingHead
from vision.sequences.matching import IMAGE, check_true_pair, image_id, labelled
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Word
from workbench.models.network import Network
from workbench.pretraining.forward import HeadInputs, States
from workbench.pretraining.objective import BatchTargets, Head, LossOutput
from workbench.sequences.batch import Batch
from workbench.sequences.sequence import Sample, Sequence
from workbench.sequences.transfer import on_device


class PairContrast(Matching):
    """Contrastive matching of pairs that the layers have read jointly. The right text of a video is chosen among the
    pairs of the micro-batch.

    Args:
        tap: the layer `tap` after which text and video see each other.
        exchange: the item that is exchanged in the negatives: the `text` (CBT) or the `video` (UniVL).
        negatives: most negatives, those that follow in the micro-batch; by default all. Pairs of the same video are
        excluded. text, video: the streams of the pair.
    """

    def __init__(
        self,
        tap: Word,
        exchange: Literal["text", "video"] = "text",
        negatives: Count | None = None,
        text: Word = "text",
        video: Word = "video",
    ) -> None:
        self.tap, self.exchange, self.negatives = tap, exchange, negatives
        self.streams = (text, video)

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        return [labelled(sample, IMAGE, image_id(sample)) for sample in samples]

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            pair = f"rows in the streams {' and '.join(self.streams)}"
            check_true_pair(sequence, self.streams, self.name, pair)
            sequence.targets[self.name] = {"video": np.asarray([sequence.labels[IMAGE]], np.int64)}
        return {}

    def count(self, batch: Batch) -> float:
        """The number of pairs."""
        return float(len(batch.targets.get(self.name, {}).get("video", ())))

    def head(self, network: Network) -> Head:
        widths = [self.width(network, stream) for stream in self.streams]
        text = self.streams[0]
        return PairContrastHead(self, network.pooled_size(text) if text in network.poolers else widths[0])


class PairContrastHead(MatchingHead):
    """A score from the pooled state of the text: of its pooler, if the network has one."""

    def __init__(self, options: PairContrast, hidden_size: int) -> None:
        super().__init__()
        self.tap, self.streams = options.tap, options.streams
        self.texts, self.negatives = options.exchange == "text", options.negatives
        self.score = nn.Linear(hidden_size, 1)

    def match(self, network: Network, states: States, batch: Batch) -> Tensor:
        """s [sequences], float32."""
        text = self.streams[0]
        pool = network.pool if text in network.poolers else network.summary_rows
        return self.score(pool(states, batch, text)).squeeze(1).float()

    def forward(self, inputs: HeadInputs) -> LossOutput:
        read = inputs.read()
        own = self.match(inputs.network, read.states, read.batch)
        pairs = others(inputs.known("video"), self.negatives)
        table = own.new_full((len(own), len(own)), float("-inf")).diagonal_scatter(own)
        kept, changed = pairs.T.tolist() if len(pairs) else ([0], [0])
        picked = dict(zip(self.streams, (changed, kept) if self.texts else (kept, changed), strict=True))
        rows = {name: read.batch.streams[name].rows_of(chosen) for name, chosen in picked.items()}
        taps = {name: read.at(self.tap)[name][chosen] for name, chosen in rows.items()}
        wrong = inputs.run(
            read.batch.pick(picked), after=self.tap, taps=taps
        )  # without negatives too: other ranks do so
        if len(pairs):
            places = on_device(pairs.T, own.device)
            table = table.index_put(tuple(places), self.match(inputs.network, wrong.states, wrong.batch))
        answers = torch.arange(len(own), device=own.device)
        right = (table.detach().argmax(1) == answers).sum()
        return LossOutput(F.cross_entropy(table, answers, reduction="sum"), {"accuracy": (right, float(len(own)))})


def others(ids: Tensor, most: int | None) -> Tensor:
    """For each pair at most `most` following pairs of other videos, wrapping around [n, 2]: pair, other."""
    size = len(ids)
    places = torch.arange(size, device=ids.device)
    following = (places[:, None] + torch.arange(1, max(size, 1), device=ids.device)) % max(size, 1)
    allowed = ids[following] != ids[:, None]
    if most is not None:
        allowed &= allowed.cumsum(1) <= most
    pair, column = allowed.nonzero(as_tuple=True)
    return torch.stack([pair, following[pair, column]], 1)
