"""Contrast of videos and texts with several positives (MIL-NCE, Miech et al., arXiv:1912.06430; UniVL, 2002.06353).

    L = - sum over pairs i of log [ sum over j in P_i of exp(t_j . v_i) / (sum over P_i and N_i) ]

P_i are the texts of the same video as pair i (including those just before and after it), N_i the other texts with v_i,
exp(t_j . v_i), and the other videos with t_i, exp(t_i . v_j). t and v are the means of the states of the two encoders,
without a projection (UniVL, section 3.3). UniVL's code counts only the middle text of a video; the paper's sum over all
pairs is implemented.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from vision.objectives._comparing import SIDES, MediaContrast, MediaContrastHead
from vision.sequences.matching import IMAGE, check_true_pair, image_id, labelled, segment_id
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Word
from workbench.objectives._vectors import Pool, pool_rows
from workbench.pretraining.forward import HeadInputs, NetworkOutput
from workbench.pretraining.objective import BatchTargets, GlobalBatchHead, LossOutput
from workbench.recipe.spec import Spec
from workbench.sequences.batch import Batch
from workbench.sequences.sequence import Sample, Sequence

if TYPE_CHECKING:
    from workbench.models.network import Network


class MilNce(MediaContrast):
    """Video-text contrastive loss with several positives over the global batch (MIL-NCE, Miech et al.,
    arXiv:1912.06430; UniVL, arXiv:2002.06353).

    Args:
        pool_text, pool_video: the row of a sequence to use: the `mean` of its rows, its `first` or its `last` row.
        negatives: over the `step`, or only the `micro-batch`.
        tap: the layer `tap` whose streams are compared; by default the last layer.
        text, video: the streams that are compared, of one hidden size.
        positives: the positive texts of a pair's video: those anywhere in the `video`, or only in its own `segment`,
        which
            retrieval also separates from other segments of the video.
    """

    def __init__(
        self,
        pool_text: Pool = "mean",
        pool_video: Pool = "mean",
        negatives: Literal["step", "micro-batch"] = "step",
        tap: Word | None = None,
        text: Word = "text",
        video: Word = "video",
        positives: Literal["video", "segment"] = "video",
    ) -> None:
        if text == video:
            raise WorkbenchError(f"text = video = {text!r}; name two different streams to compare")
        self.streams = dict(zip(SIDES, (text, video), strict=True))
        self.pools: dict[str, Pool] = {text: pool_text, video: pool_video}
        self.global_batch, self.tap, self.positives = negatives == "step", tap, positives

    @classmethod
    def tuned(cls, stated: Spec) -> Spec:
        return {**stated, "positives": "segment"}

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        known = segment_id if self.positives == "segment" else image_id
        return [labelled(sample, IMAGE, known(sample)) for sample in samples]

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            pair = f"rows in the streams {' and '.join(self.pools)}"
            check_true_pair(sequence, self.pools, self.name, pair)
            sequence.targets[self.name] = {"video": np.asarray([sequence.labels[IMAGE]], np.int64)}
        return {}

    def count(self, batch: Batch) -> float:
        """The number of pairs."""
        return float(len(batch.targets.get(self.name, {}).get("video", ())))

    def head(self, network: Network) -> GlobalBatchHead:
        sizes = {stream: self.width(network, stream) for stream in self.pools}
        if len(set(sizes.values())) != 1:
            raise WorkbenchError(f"objective {self.name!r}: compared streams need the same width; found {sizes}")
        return MilNceHead(self)


class MilNceHead(MediaContrastHead):
    """A head without weights."""

    def __init__(self, options: MilNce) -> None:
        super().__init__()
        self.streams, self.pools, self.tap = options.streams, options.pools, options.tap

    def vectors(self, read: NetworkOutput, stream: str) -> Tensor:
        """The mean (or the first or last) of the rows, not normalised, as products are compared.

        Raises:
            WorkbenchError: the network has no such tap.
        """
        states = read.at(self.tap)
        return pool_rows(states[stream], read.batch, stream, self.pools[stream]).float()

    def embed(self, inputs: HeadInputs) -> dict[str, Tensor]:
        text, video = (self.vectors(inputs.read(), stream) for stream in self.pools)
        return {"text": text, "video": video, "video_id": inputs.targets["video"]}

    def loss(self, embedded: dict[str, Tensor], own: slice) -> LossOutput:
        text, video, ids = embedded["text"], embedded["video"], embedded["video_id"]
        with torch.autocast(text.device.type, enabled=False):
            texts = video[own] @ text.T  # scores of all texts with this rank's videos
            videos = text[own] @ video.T
        same = ids[own, None] == ids
        positive = texts.masked_fill(~same, float("-inf")).logsumexp(1)
        everything = torch.cat([texts, videos.masked_fill(same, float("-inf"))], 1).logsumexp(1)
        with torch.no_grad():
            found = same.gather(1, texts.argmax(1, keepdim=True)).sum()
        return LossOutput((everything - positive).sum(), {"video_to_text": (found, float(len(texts)))})
