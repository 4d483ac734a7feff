"""Image-text matching against hard negatives (ALBEF, arXiv:2107.07651, section 3.2).

    L = - sum over pairs (t, v) of [ log p(1 | t, v) + log p(0 | t, v-) + log p(0 | t-, v) ]

v- is an image of the micro-batch, drawn with the probability softmax(s t . v'_j) of a contrast, and t- a text drawn
with softmax(s v . t'_j): never one of a pair with the same image or the same text. The pairs are combined where text
and image have not seen each other yet: the layers after that `tap` run again on them.
A contrast without a momentum copy has t' = t and v' = v.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vision.metrics.retrieval_scores import best_products
from vision.objectives.itm import Itm, ItmHead
from vision.sequences.matching import IMAGE, check_true_pair, image_id, labelled
from workbench.core.errors import unknown
from workbench.core.keyed import Draws, digest
from workbench.core.options.bounds import Word
from workbench.objectives._vectors import pool_rows
from workbench.pretraining.forward import HeadInputs, States
from workbench.pretraining.objective import BatchTargets, LossOutput
from workbench.recipe.spec import Spec
from workbench.sequences.batch import Batch
from workbench.sequences.sequence import Sample, Sequence
from workbench.sequences.transfer import rows_where

if TYPE_CHECKING:
    from workbench.models.network import Network


class HardItm(Itm):
    """Image-text matching with hard negatives (ALBEF, arXiv:2107.07651, section 3.2): every pair, its text with a hard
    image, and its image with a hard text.

    Args:
        of: the `vision.momentum_contrast` or `vision.query_contrast` of the same task and network.
        tap: the layer `tap` after which text and image see each other.
        text, image: the streams of the pair; those that belong to one of them go with it.
        queries: the stream whose rows are classified, and their logits averaged (BLIP-2, arXiv:2301.12597, section
            3.1); null: the row that represents the text.
        without: streams that belong to one of them, and that its layers do not read: they stay behind (BLIP's copies
            of the text).
    """

    def __init__(
        self,
        tap: Word,
        of: Word = "momentum_contrast",
        text: Word = "text",
        image: Word = "image",
        queries: Word | None = None,
        without: list[Word] = [],  # noqa: B006 - never changed
    ) -> None:
        super().__init__(rate=0.0)
        self.without = frozenset(without)
        self.tap, self.of, self.queries = tap, of, queries
        self.streams = (text, image)
        self.after = (of,)

    @classmethod
    def tuned(cls, stated: Spec) -> Spec | None:
        """None: fine-tuning has no contrast that draws the hard negatives."""
        return None

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        return [labelled(sample, IMAGE, image_id(sample)) for sample in samples]

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            check_true_pair(sequence, self.streams, self.name, "a text and an image")
            said = digest("text", sequence.streams[self.streams[0]]["input_ids"].tobytes().hex()) >> 65
            sequence.targets[self.name] = {
                "image": np.asarray([sequence.labels[IMAGE]], np.int64),
                "text": np.asarray([said], np.int64),
            }
        return {}

    def count(self, batch: Batch) -> float:
        """The pairs, true and wrong."""
        if self.name not in batch.targets:
            return 0.0
        targets = batch.targets[self.name]
        return float(len(targets["image"]) + 2 * rivals(targets).any(1).sum())

    def head(self, network: Network) -> HardItmHead:
        for stream in sorted(self.without - network.sizes.keys()):
            raise unknown("stream", stream, network.sizes, "the network")
        widths = {stream: self.width(network, stream) for stream in self.streams}
        if self.queries is not None:
            return HardItmHead(self, {self.queries: self.width(network, self.queries)})
        return HardItmHead(self, {self.streams[0]: widths[self.streams[0]]})


class HardItmHead(ItmHead):
    """A linear classifier on the state of the text, which has seen the image, or on the mean of those of queries."""

    def __init__(self, options: HardItm, sizes: dict[str, int]) -> None:
        super().__init__(list(sizes), sizes)
        self.tap, self.of, self.streams, self.queries = options.tap, options.of, options.streams, options.queries
        self.without = options.without

    def logits(self, network: Network, states: States, batch: Batch) -> Tensor:
        """[sequences, 2]: exchanged, matched."""
        if self.queries is not None:
            return self.classifier(pool_rows(states[self.queries], batch, self.queries, "mean"))
        return self.classifier(network.summary_rows(states, batch, self.streams[0]))

    def forward(self, inputs: HeadInputs) -> LossOutput:
        """Passes on the drawn negatives, each [n, 2]: `image_of` texts, `text_of` images."""
        read, made, others = inputs.read(), inputs.outputs(self.of), rivals(inputs.targets)
        sharp, text, image = made["scale"][:, None], made["text"], made["image"]
        asking = rivals({name: inputs.known(name) for name in ("image", "text")}).any(1)
        asked = rows_where(asking, others.device)
        image_of = drawn(sharp * best_products(text, made.get("image_followed", image)), others, asked)
        text_of = drawn(sharp * best_products(made.get("text_followed", text), image).T, others, asked)
        logits = [self.logits(inputs.network, read.states, inputs.batch)]
        # the one wait that remains: attention needs the lengths of the drawn texts on the host
        pairs = torch.cat([image_of, text_of.flip(1)]).T.tolist() if len(image_of) else [[0], [0]]
        sides = dict(zip(self.streams, pairs, strict=True))
        bound = {name: side for side in sides for name in inputs.batch.linked_to(side) - {side} - self.without}
        picked = sides | {name: sides[side] for name, side in sorted(bound.items())}
        rows = {name: inputs.batch.streams[name].rows_of(chosen) for name, chosen in picked.items()}
        taps = {name: read.at(self.tap)[name][chosen] for name, chosen in rows.items()}
        wrong = inputs.run(
            inputs.batch.pick(picked), after=self.tap, taps=taps
        )  # without negatives too: other ranks do so
        if len(image_of):
            logits.append(self.logits(inputs.network, wrong.states, wrong.batch))
        both = torch.cat(logits).float()
        labels = (torch.arange(len(both), device=both.device) < inputs.batch.size).long()
        right = (both.detach().argmax(-1) == labels).sum()
        loss = F.cross_entropy(both, labels, reduction="sum")
        made_here = {"image_of": image_of, "text_of": text_of}
        return LossOutput(loss, {"accuracy": (right, float(len(both)))}, made_here)


def rivals(targets: dict[str, Tensor]) -> Tensor:
    """Which pairs of a micro-batch have different images and different texts [pairs, pairs]."""
    image, text = targets["image"], targets["text"]
    return (image[:, None] != image) & (text[:, None] != text)


@torch.no_grad()
def drawn(scores: Tensor, allowed: Tensor, rows: Tensor) -> Tensor:
    """For each of these rows a candidate drawn by softmax(scores), among the allowed ones [n, 2]: the row, the
    candidate.

    Args:
        scores: [rows, candidates].
        allowed: the same shape.
        rows: the rows with at least one allowed candidate [n].
    """
    weights = scores.float().masked_fill(~allowed, float("-inf"))[rows].softmax(-1)
    if not len(rows):
        return torch.stack([rows, rows], 1)
    return torch.stack([rows, torch.multinomial(weights, 1).squeeze(1)], 1)
