"""Image-text contrast: which of all captions of the step belongs to which image (CLIP, arXiv:2103.00020; SigLIP,
arXiv:2303.15343). It is the objective `contrast` for texts and images.

    loss = sum over pairs of [ CE(s t_i . v_j over j; i) + CE(s t_i . v_j over i; j) ] / 2,  s = exp(scale) <= 100

with t and v the normalised projections of the text and the image. By default the negatives are those of the whole step,
over micro-batches and ranks; `negatives: micro-batch` uses only the micro-batch.

Texts and images need separate vectors. A network whose layers mix no streams (CLIP) has them; one that encodes each
before it mixes them (ALBEF, CoCa) has them at a layer `tap`. One with joint layers has them with `apart`, which hides
the two from each other, so that the stack encodes each alone with shared weights. Give the objective a separate view
then; other objectives use the same network as a single stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from vision.metrics.retrieval_scores import DualScores, retrieval_metrics
from vision.objectives._comparing import SIDES, MediaContrast, MediaContrastHead
from vision.sequences.matching import IMAGE, MATCHED, image_id, labelled
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Figure, Size, Word
from workbench.objectives._vectors import Pool
from workbench.objectives.contrast import Contrast, ContrastHead, Loss, Temperature
from workbench.pretraining.objective import BatchTargets
from workbench.sequences.sequence import Sample, Sequence

if TYPE_CHECKING:
    from workbench.models.network import Network


class Itc(Contrast, MediaContrast):
    """Image-text contrastive loss over the global batch (CLIP, arXiv:2103.00020; SigLIP, arXiv:2303.15343).

    Args:
        size: width of the common space.
        pool_text, pool_image: the row of a sequence to use: its `first` row, `last` row, or `mean` (CLIP: last, first).
        norm: a LayerNorm on the pooled state before the projection (for pre-norm stacks, as CLIP).
        temperature: 1 / s at the start.
        negatives: over the `step`, or only the `micro-batch`.
        same_image: role of other captions of a pair's own image: `ignored` (left out), or `negative` (CLIP's code).
        apart: text and image do not see each other; for networks with joint layers.
        tap: the layer `tap` whose streams are compared; by default the last layer.
        text, image: the streams that are compared.
        loss: `softmax` (CLIP) or `sigmoid` (SigLIP).
        logit_bias: b of the sigmoid loss at the start.
        projected: the sides that are projected: `both`, or the `text` into the space of the image's states (SigLIP).
        bias: whether projections have one.
    """

    sides = SIDES
    identity = "image_id"
    target = "image"
    measured = ("text", "image", "image_id")

    def __init__(
        self,
        size: Size = 256,
        pool_text: Pool = "first",
        pool_image: Pool = "first",
        norm: bool = False,
        temperature: Temperature = 0.07,
        negatives: Literal["step", "micro-batch"] = "step",
        same_image: Literal["ignored", "negative"] = "ignored",
        apart: bool = False,
        tap: Word | None = None,
        text: Word = "text",
        image: Word = "image",
        loss: Loss = "softmax",
        logit_bias: Figure = -10.0,
        projected: Literal["both", "text"] = "both",
        bias: bool = False,
    ) -> None:
        if text == image:
            raise WorkbenchError(f"text = image = {text!r}; name two different streams to compare")
        super().__init__(
            text,
            image,
            roles=False,
            size=size,
            norm=norm,
            bias=bias,
            loss=loss,
            temperature=temperature,
            logit_bias=logit_bias,
            negatives=negatives,
            same=same_image,
            tap=tap,
        )
        self.pools = {text: pool_text, image: pool_image}
        self.projected = frozenset([text, image] if projected == "both" else [text])
        self.apart = apart

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        return [labelled(sample, IMAGE, image_id(sample)) for sample in samples]

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            if sequence.labels.get(MATCHED) == 0:
                raise WorkbenchError(
                    f"objective {self.name!r}: it needs true pairs, but an itm of the same task exchanges them; put "
                    "itm in a separate task"
                )
            if not all(sequence.length(stream) for stream in self.pools):
                raise WorkbenchError(
                    f"objective {self.name!r}: sequence {sequence.key!r} has no rows in one of the streams "
                    f"{' and '.join(self.pools)}"
                )
            sequence.targets[self.name] = {self.target: np.asarray([sequence.labels[IMAGE]], np.int64)}
            if self.apart:
                separate(sequence, next(iter(self.pools)))
        return {}

    def measure(self, made: Mapping[str, Tensor]) -> dict[str, float]:
        """Recalls and ranks among all pairs of the pass, as in retrieval; images with several captions count once."""
        _, first, owner = np.unique(made["image_id"].numpy(), return_index=True, return_inverse=True)
        return retrieval_metrics(DualScores(made["text"], made["image"][torch.from_numpy(first)]), owner)

    def head(self, network: Network) -> ItcHead:
        return ItcHead(self, self.compared_widths(network))


class ItcHead(ContrastHead, MediaContrastHead):
    """The head of `contrast`, as retrieval knows it."""


def separate(sequence: Sequence, stream: str) -> None:
    """Make a stream a separate document, which does not see the others. These stay as they are in other views, so that
    the layers that read them alone run once.

    Raises:
        WorkbenchError: the stream has documents already (packed texts).
    """
    if "doc" in sequence.streams[stream]:
        raise WorkbenchError(f"itc: sequence {sequence.key!r} is packed, so its {stream} cannot be kept apart")
    sequence.streams[stream]["doc"] = np.ones(sequence.length(stream), np.int64)
