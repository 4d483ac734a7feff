"""Image-text contrast: which of all captions of the step belongs to which image (CLIP, arXiv:2103.00020).

    loss = sum over pairs of [ CE(s t_i . v_j over j; i) + CE(s t_i . v_j over i; j) ] / 2,  s = exp(scale) <= 100

with t and v the normalised projections of the text and the image. By default the negatives are those of the whole step,
over micro-batches and ranks; `negatives: micro-batch` uses only the micro-batch.

Texts and images need separate vectors. A network whose layers mix no streams (CLIP) has them; one that encodes each
before it mixes them (ALBEF, CoCa) has them at a layer `tap`. One with joint layers has them with `apart`, which hides
the two from each other, so that the stack encodes each alone with shared weights. Give the objective a separate view
then; other objectives use the same network as a single stream.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import torch
from annotated_types import Ge, Le
from torch import Tensor, nn
from torch.nn import functional as F

from vision.metrics.retrieval_scores import DualScores, retrieval_metrics
from vision.objectives._comparing import SIDES, Contrast, ContrastHead
from vision.sequences.matching import IMAGE, MATCHED, image_id, labelled
from workbench.core.errors import WorkbenchError, unknown
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Number, Size, Word
from workbench.interop.sentence_modules import VectorLayers
from workbench.pretraining.forward import HeadInputs, NetworkOutput
from workbench.pretraining.objective import BatchTargets, GlobalBatchHead, LossOutput
from workbench.sequences.batch import Batch
from workbench.sequences.sequence import Sample, Sequence

if TYPE_CHECKING:
    from workbench.models.network import Network

Pool = Literal["first", "mean", "last"]
Temperature = Annotated[Number, Ge(0.01), Le(100)]  # 1 / MAX_SCALE and above: the scale is clipped there
MAX_SCALE = 100.0


class Itc(Contrast):
    """Image-text contrastive loss over the global batch (CLIP, arXiv:2103.00020).

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
    """

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
    ) -> None:
        if text == image:
            raise WorkbenchError(f"text = image = {text!r}; name two different streams to compare")
        self.size = size
        self.streams = dict(zip(SIDES, (text, image), strict=True))
        self.pools: dict[str, Pool] = {text: pool_text, image: pool_image}
        self.norm = norm
        self.temperature = temperature
        self.global_batch = negatives == "step"
        self.same_image = same_image
        self.apart = apart
        self.tap = tap

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
            sequence.targets[self.name] = {"image": np.asarray([sequence.labels[IMAGE]], np.int64)}
            if self.apart:
                separate(sequence, tuple(self.pools))
        return {}

    def count(self, batch: Batch) -> float:
        """The number of pairs."""
        return float(len(batch.targets.get(self.name, {}).get("image", ())))

    def measure(self, made: Mapping[str, Tensor]) -> dict[str, float]:
        """Recalls and ranks among all pairs of the pass, as in retrieval; images with several captions count once."""
        _, first, owner = np.unique(made["image_id"].numpy(), return_index=True, return_inverse=True)
        return retrieval_metrics(DualScores(made["text"], made["image"][torch.from_numpy(first)]), owner)

    def head(self, network: Network) -> GlobalBatchHead:
        return ItcHead(self, {stream: self.width(network, stream) for stream in self.pools})


class CommonSpace(nn.Module):
    """Projections of texts and images into their common space."""

    def __init__(self, options: Itc, sizes: dict[str, int]) -> None:
        super().__init__()
        self.pools, self.streams, self.tap = options.pools, options.streams, options.tap
        self.norms = nn.ModuleDict({s: nn.LayerNorm(sizes[s]) if options.norm else nn.Identity() for s in self.pools})
        self.projections = nn.ModuleDict({s: nn.Linear(sizes[s], options.size, bias=False) for s in self.pools})

    def forward(self, read: NetworkOutput, stream: str) -> Tensor:
        """The normalised vector of each sequence's text or image [sequences, size], float32.

        Raises:
            WorkbenchError: the network has no such tap.
        """
        if self.tap is not None and self.tap not in read.taps:
            raise unknown("tap", self.tap, read.taps, "the network's layers")
        states = read.states if self.tap is None else read.taps[self.tap]
        pooled = pool_rows(states[stream], read.batch, stream, self.pools[stream])
        return F.normalize(self.projections[stream](self.norms[stream](pooled)).float(), dim=-1)


class ItcHead(ContrastHead):
    """The common space and the learned scale."""

    def __init__(self, options: Itc, sizes: dict[str, int]) -> None:
        super().__init__()
        self.streams = options.streams
        self.ignore_same_image = options.same_image == "ignored"
        self.space = CommonSpace(options, sizes)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / options.temperature)))

    def vectors(self, read: NetworkOutput, stream: str) -> Tensor:
        """As `CommonSpace.forward`."""
        return self.space(read, stream)

    def vector_layers(self, stream: str) -> VectorLayers:
        """The layers of `vectors`, for an export."""
        norm, linear = self.space.norms[stream], self.space.projections[stream]
        assert isinstance(linear, nn.Linear)
        return VectorLayers(self.space.pools[stream], norm if isinstance(norm, nn.LayerNorm) else None, linear)

    def embed(self, inputs: HeadInputs) -> dict[str, Tensor]:
        vectors = {side: self.vectors(inputs.read(), stream) for side, stream in self.space.streams.items()}
        return {**vectors, "image_id": inputs.targets["image"]}

    def loss(self, embedded: dict[str, Tensor], own: slice) -> LossOutput:
        text, image, ids = embedded["text"], embedded["image"], embedded["image_id"]
        self.clip_scale()
        everyone = torch.arange(len(ids), device=ids.device)
        answers = everyone[own]
        same = None
        if self.ignore_same_image:
            same = (ids[own, None] == ids) & (answers[:, None] != everyone)
        to_image, found_image = self._direction(text[own], image, answers, same)
        to_text, found_text = self._direction(image[own], text, answers, same)
        pairs = float(len(answers))
        metrics: dict[str, tuple[Tensor | float, Tensor | float]] = {
            "text_to_image": (found_image, pairs),
            "image_to_text": (found_text, pairs),
            "scale": (self.logit_scale.detach().exp() * pairs, pairs),
        }
        return LossOutput((to_image + to_text) / 2, metrics)

    def clip_scale(self) -> None:
        with torch.no_grad():
            self.logit_scale.clamp_(max=math.log(MAX_SCALE))

    def scores(self, queries: Tensor, keys: Tensor, ignored: Tensor | None) -> Tensor:
        """s q . k in float32 [queries, keys], -inf for keys that are not candidates."""
        with torch.autocast(queries.device.type, enabled=False):
            logits = self.logit_scale.float().exp() * queries.float() @ keys.float().T
        return logits if ignored is None else logits.masked_fill(ignored, float("-inf"))

    def _direction(
        self, queries: Tensor, keys: Tensor, answers: Tensor, ignored: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The loss of the queries for their keys `answers`, and the number of queries that rank them first.

        Args:
            queries: [own, size].
            keys: [step, size].
            answers: the row of each query's key [own].
            ignored: keys that are not candidates [own, step].
        """
        logits = self.scores(queries, keys, ignored)
        return F.cross_entropy(logits, answers, reduction="sum"), (logits.detach().argmax(1) == answers).sum()


def separate(sequence: Sequence, streams: tuple[str, ...]) -> None:
    """Make each of the streams a separate document, which does not see the others.

    Raises:
        WorkbenchError: a stream has documents already (packed texts).
    """
    for document, stream in enumerate(streams, 1):
        if "doc" in sequence.streams[stream]:
            raise WorkbenchError(f"itc: sequence {sequence.key!r} is packed, so its {stream} cannot be kept apart")
        sequence.streams[stream]["doc"] = np.full(sequence.length(stream), document)


def pool_rows(rows: Tensor, batch: Batch, stream: str, pool: Pool) -> Tensor:
    """One row per sequence from the rows of a stream: its first, its last, or their mean [sequences, hidden_size]. The
    mean of no rows is 0."""
    offsets = batch.streams[stream].offsets
    if pool == "first":
        return rows[offsets[:-1]]
    if pool == "last":
        return rows[offsets[1:] - 1]
    rows, lengths = rows.float(), offsets.diff()
    sequence = torch.repeat_interleave(lengths, output_size=len(rows))
    return rows.new_zeros(len(lengths), rows.shape[1]).index_add(0, sequence, rows) / lengths.clamp(min=1)[:, None]
