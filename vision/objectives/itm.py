"""Image-text matching: does the caption belong to the image? (ViLBERT, LXMERT, UNITER)

With probability `rate` a sample's text (or its image) is exchanged for that of another sample of the micro-batch,
never one that shows the same image or says or asks the same. The label of a sequence is 1 = matched, 0 = exchanged, as
UNITER's release; ViLBERT's and LXMERT's have it the other way round. A sample without such a partner stays matched.

The label is `sequence.labels["matched"]`: a fact about the pair, so that other objectives can leave exchanged ones
alone. A pair that was exchanged before, by another itm of the task, stays as it is and lends nothing; so does an image
without a text, but for the image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vision.sequences.pairs import MATCHED, image_id, labelled
from workbench.errors import WorkbenchError
from workbench.keyed import Draws
from workbench.options.bounds import Share, Word
from workbench.sequences.batch import Batch
from workbench.sequences.sequence import Sample, Sequence
from workbench.tasks.forward import Seen, States
from workbench.tasks.objective import BatchTargets, Head, LossOutput, Objective

if TYPE_CHECKING:
    from workbench.models.network import Network

EXCHANGED = {"caption": ("captions", "caption_spans", "questions"), "image": ("image", "media", "regions", "meta")}


class Itm(Objective):
    """Image-text matching as a two-way classification of the pooled output.

    Args:
        rate: probability of an exchange (0.5 in all published models).
        exchange: what is replaced: `caption` (or question; LXMERT, ViLBERT) or `image` (UNITER).
        pool: the streams whose pooled outputs are multiplied: [text] (UNITER, LXMERT) or [text, image] (ViLBERT).
    """

    def __init__(
        self, rate: Share = 0.5, exchange: Literal["caption", "image"] = "caption", pool: list[Word] | None = None
    ) -> None:
        self.rate = rate
        self.exchange = exchange
        self.pool = pool or ["text"]

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        arranged = []
        lenders = [s for s in samples if not _exchanged(s) and (_texts(s) or self.exchange == "image")]
        for sample in samples:
            if _exchanged(sample) or not _texts(sample):
                arranged.append(sample)
                continue
            rng = draws.of(sample["draw"])
            partners = [other for other in lenders if _differ(sample, other)] if rng.random() < self.rate else []
            if not partners:
                arranged.append(labelled(sample, MATCHED, 1))
                continue
            other = partners[int(rng.integers(len(partners)))]
            borrowed = {name: other[name] for name in EXCHANGED[self.exchange] if name in other}
            kept = {name: value for name, value in sample.items() if name not in EXCHANGED[self.exchange]}
            arranged.append(labelled({**kept, **borrowed}, MATCHED, 0))
        return arranged

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            lacking = [stream for stream in self.pool if not sequence.length(stream)]
            if lacking:
                raise WorkbenchError(
                    f"objective {self.name!r}: sequence {sequence.key!r} has no rows in the stream {lacking[0]!r}, "
                    "whose pooled output it reads; take such samples out of the corpus, or set pool: [text]"
                )
            label = sequence.labels.get(MATCHED, -100)
            sequence.targets[self.name] = {"labels": np.asarray([label], np.int64)}
        return {}

    def head(self, network: Network) -> Head:
        for stream in self.pool:
            if stream not in network.poolers:
                raise WorkbenchError(
                    f"objective {self.name!r}: the stream {stream!r} has no pooler; set model.poolers: "
                    f"[{', '.join(self.pool)}]"
                )
        return ItmHead(self.pool, {name: network.sizes[name] for name in self.pool})


class ItmHead(Head):
    """A linear classifier on the pooled output, or on the product of several streams' pooled outputs."""

    def __init__(self, pool: list[str], sizes: dict[str, int]) -> None:
        super().__init__()
        if len(set(sizes.values())) != 1:
            raise WorkbenchError(f"itm: streams that are multiplied need one pooled width; found {sizes}")
        self.pool = pool
        self.classifier = nn.Linear(sizes[pool[0]], 2)

    def logits(self, network: Network, states: States, batch: Batch) -> Tensor:
        """[sequences, 2]: exchanged, matched."""
        pooled = network.pool(states, batch, self.pool[0])
        for stream in self.pool[1:]:
            pooled = pooled * network.pool(states, batch, stream)
        return self.classifier(pooled)

    def forward(self, seen: Seen) -> LossOutput:
        logits = self.logits(seen.network, seen.states, seen.batch).float()
        labels = seen.targets["labels"]
        loss = F.cross_entropy(logits, labels, reduction="sum", ignore_index=-100)
        known = labels != -100
        with torch.no_grad():
            hits = (logits.argmax(-1) == labels).sum()
        return LossOutput(loss, {"accuracy": (hits, known.sum())})


def _differ(sample: Sample, other: Sample) -> bool:
    """Whether `other` shows another image and says something else."""
    return image_id(sample) != image_id(other) and not _texts(sample) & _texts(other)


def _texts(sample: Sample) -> set[str]:
    return {*sample.get("captions", ()), *(question["question"] for question in sample.get("questions", ()))}


def _exchanged(sample: Sample) -> bool:
    return sample.get("labels", {}).get(MATCHED) == 0
