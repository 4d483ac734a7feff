"""Image-text contrast with a momentum encoder and queues (ALBEF, arXiv:2107.07651, sections 3.2 and 3.3; MoCo).

    loss = sum over pairs i of [ H(y'_i, softmax_j(s t_i . v'_j)) + H(y''_i, softmax_j(s v_i . t'_j)) ] / 2
    y'_i = (1 - a) [j = i] + a softmax_j(s t'_i . v'_j), and y''_i likewise

t and v are the vectors of `vision.itc`, t' and v' those of a momentum copy of the network and of its projections. j
runs over the pairs of the step (or the micro-batch) and over the last `queue` pairs before it, whose t' and v' are
stored. Other captions of a pair's own image are not candidates, and neither are empty places of the queue (the
published code fills these with noise). a is the share of soft targets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from vision.objectives._comparing import SIDES
from vision.objectives.itc import Itc, ItcHead
from workbench.components.building import options_of
from workbench.components.kinds import KINDS
from workbench.core.options.bounds import Count, Size, Word
from workbench.objectives._vectors import Pool
from workbench.objectives.contrast import Temperature
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import LossOutput, SoftTargets, soft_cross_entropy
from workbench.pretraining.task import objective_name
from workbench.recipe.spec import Spec

if TYPE_CHECKING:
    from workbench.models.network import Network
    from workbench.pretraining.model import WeightUpdate

EMPTY = -1  # image number of an empty place of the queue


class MomentumContrast(Itc):
    """Image-text contrastive loss with a momentum encoder and queues (ALBEF, arXiv:2107.07651, section 3; MoCo). The
    queues hold vectors of earlier steps.

    Args:
        soft: {follower, share, ramp}: the momentum network, and the share of its similarities in the targets.
        queue: pairs of earlier steps that are candidates.
        size: width of the common space.
        pool_text, pool_image: the row of a sequence to use, as for `vision.itc`.
        temperature: 1 / s at the start.
        negatives: in addition to the queue: over the `step`, or only the `micro-batch`.
        tap: the layer `tap` where text and image have not seen each other.
        text, image: the streams that are compared.
    """

    def __init__(
        self,
        soft: SoftTargets,
        queue: Count = 65536,
        size: Size = 256,
        pool_text: Pool = "first",
        pool_image: Pool = "first",
        temperature: Temperature = 0.07,
        negatives: Literal["step", "micro-batch"] = "step",
        tap: Word | None = None,
        text: Word = "text",
        image: Word = "image",
    ) -> None:
        super().__init__(
            size,
            pool_text,
            pool_image,
            temperature=temperature,
            negatives=negatives,
            tap=tap,
            text=text,
            image=image,
        )
        self.soft = soft
        self.queue = queue

    @classmethod
    def tuned(cls, stated: Spec) -> Spec:
        """The plain `vision.itc` with its space: fine-tuning has no momentum encoder and no queue."""
        kept = {option: value for option, value in stated.items() if option in options_of(Itc).names}
        return {"objective": KINDS["objective"].name(Itc), "name": objective_name(stated), **kept}

    def head(self, network: Network) -> MomentumContrastHead:
        super().head(network)
        return MomentumContrastHead(self, network.sizes)


class MomentumContrastHead(ItcHead):
    """The common space and the scale of `vision.itc`, and the queue: the newest pair first."""

    keeps = ("text_followed", "image_followed", "image_id")
    text_queue: Tensor
    image_queue: Tensor
    image_id_queue: Tensor

    def __init__(self, options: MomentumContrast, sizes: dict[str, int]) -> None:
        super().__init__(options, sizes)
        self.soft = options.soft
        assert options.size is not None
        for side in SIDES:
            self.register_buffer(f"{side}_queue", torch.zeros(options.queue, options.size))
        self.register_buffer("image_id_queue", torch.full((options.queue,), EMPTY))

    def averaged(self) -> nn.Module:
        return self.space

    def embed(self, inputs: HeadInputs) -> dict[str, Tensor]:
        """The vectors `text`, `image`, `text_followed`, `image_followed` [sequences, size], the `scale` s, ..."""
        space, read = inputs.averaged(self.soft.follower), inputs.read(network=self.soft.follower)
        followed = {f"{side}_followed": space(read, stream) for side, stream in self.space.streams.items()}
        embedded = super().embed(inputs)
        ones = torch.ones(inputs.batch.size, device=embedded["image_id"].device)
        metrics = {
            "scale": ones * self.logit_scale.detach().exp(),
            "share": ones * self.soft.share_at(inputs.progress),
        }
        return embedded | followed | metrics

    def loss(self, embedded: dict[str, Tensor], own: slice) -> LossOutput:
        self.clip_scale()
        ids = torch.cat([embedded["image_id"], self.image_id_queue])
        answers = torch.arange(len(embedded["image_id"]), device=ids.device)[own]
        places = torch.arange(len(ids), device=ids.device)
        ignored = (ids == EMPTY) | ((ids[own, None] == ids) & (answers[:, None] != places))
        share = embedded["share"].detach()[own]
        losses, found = [], []
        for side, other in (SIDES, SIDES[::-1]):
            keys = torch.cat([embedded[f"{other}_followed"].detach(), getattr(self, f"{other}_queue")])
            logits = self.scores(embedded[side][own], keys, ignored)
            taught = self.scores(embedded[f"{side}_followed"].detach()[own], keys, ignored)
            losses.append(soft_cross_entropy(logits, answers, taught, share))
            found.append((logits.detach().argmax(1) == answers).sum())
        pairs = float(len(answers))
        metrics: dict[str, tuple[Tensor | float, Tensor | float]] = {
            "text_to_image": (found[0], pairs),
            "image_to_text": (found[1], pairs),
            "scale": (self.logit_scale.detach().exp() * pairs, pairs),
        }
        return LossOutput((losses[0] + losses[1]) / 2, metrics)

    def after_step(self, update: WeightUpdate) -> None:
        """Put the step's pairs before those of the queue, and drop the oldest."""
        for name in self.keeps if update.outputs else ():
            buffer = name.removesuffix("_followed") + "_queue"
            queue = getattr(self, buffer)
            setattr(self, buffer, torch.cat([update.outputs[name].to(queue.dtype), queue])[: len(queue)])
