"""Image-text matching: does the caption belong to the image? (ViLBERT, LXMERT, UNITER)

With probability `rate` a sample's text (or its image) is exchanged for that of another sample of the micro-batch, never
one with the same image, and never so that the text is one that the record has of the image. The label of a sequence is
1 = matched, 0 = exchanged, as in UNITER's published code; ViLBERT's and LXMERT's reverse it. A sample without such a
partner stays matched.

With `exchange: second_caption` the text is two captions, of which the first is always the image's (VisualBERT,
arXiv:1908.03557, section 3.3: sentence-image prediction).

The label is `sequence.labels["matched"]`, so that other objectives can exclude exchanged pairs. A pair that another itm
of the task has exchanged before stays as it is and lends nothing. An image without a text lends only the image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import torch
from annotated_types import MinLen
from torch import Tensor, nn
from torch.nn import functional as F

from vision.objectives._comparing import Matching, MatchingHead
from vision.sequences.matching import MATCHED, image_id, labelled
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Share, Size, Word
from workbench.pretraining.forward import HeadInputs, States
from workbench.pretraining.objective import BatchTargets, Head, LossOutput
from workbench.recipe.spec import Spec
from workbench.sequences.batch import Batch
from workbench.sequences.sequence import SIBLINGS, Sample, Sequence

if TYPE_CHECKING:
    from workbench.models.network import Network

EXCHANGED = {
    "caption": ("captions", "caption_spans", "questions"),
    "image": ("image", "media", "regions", "video", "clips", "meta", SIBLINGS),
}

_BY_CAPTION = ("captions", "caption_spans")


class Itm(Matching):
    """Image-text matching as binary classification of the pooled output (ViLBERT, LXMERT, UNITER).

    Args:
        rate: probability of an exchange (0.5 in all published models).
        exchange: the exchanged item: `caption` (or question; LXMERT, ViLBERT), `second_caption` of two (VisualBERT),
            `image` (UNITER), or `either`, the caption or the image at random (Unicoder-VL).
        pool: the streams whose pooled outputs are multiplied: [text] (UNITER, LXMERT) or [text, image] (ViLBERT).
        pooled_size: width of separate poolers of the objective, relu(W h + b), which map streams of different widths to
        one
            (ViLBERT's code); by default the network's poolers.
        outputs: two logits, or one, the log-odds (a head that ranks; ViLT's for retrieval).
    """

    def __init__(
        self,
        rate: Share = 0.5,
        exchange: Literal["caption", "second_caption", "image", "either"] = "caption",
        pool: Annotated[list[Word], MinLen(1)] = ["text"],  # noqa: B006 - never changed
        pooled_size: Size | None = None,
        outputs: Literal[1, 2] = 2,
    ) -> None:
        self.outputs = outputs
        self.rate = rate
        self.exchange = exchange
        self.pool = list(pool)
        self.pooled_size = pooled_size

    @classmethod
    def tuned(cls, stated: Spec) -> Spec | None:
        """With two captions the options for one: fine-tuning reads each caption alone with its image."""
        return {**stated, "exchange": "caption"} if stated.get("exchange") == "second_caption" else stated

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        arranged = []
        wordless = self.exchange in ("image", "either")  # an image may be lent without a text
        lenders = [s for s in samples if not _exchanged(s) and (_texts(s) or wordless)]
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
            arranged.append(labelled(self._with(sample, other, rng), MATCHED, 0))
        return arranged

    def _with(self, sample: Sample, other: Sample, rng: np.random.Generator) -> Sample:
        """The sample with the exchanged fields of the other."""
        if self.exchange == "second_caption":
            return self._second(sample, other, rng)
        kind: str = self.exchange
        if kind == "either":
            kind = "caption" if rng.random() < 0.5 and _texts(other) else "image"
        borrowed = {name: other[name] for name in EXCHANGED[kind] if name in other}
        return {**{name: value for name, value in sample.items() if name not in EXCHANGED[kind]}, **borrowed}

    def _second(self, sample: Sample, other: Sample, rng: np.random.Generator) -> Sample:
        """The sample with its own first caption and one of the other's."""
        if len(sample["captions"]) != 2:
            raise WorkbenchError(
                f"objective {self.name!r}: exchange: second_caption needs two captions, but sample "
                f"{sample.get('key', '?')!r} has {len(sample['captions'])}; use the builder caption_pair"
            )
        drawn = int(rng.integers(len(other["captions"])))
        pairs = {
            name: [sample[name][0], other[name][drawn]] for name in _BY_CAPTION if name in sample and name in other
        }
        return {**{name: value for name, value in sample.items() if name not in _BY_CAPTION}, **pairs}

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            lacking = [stream for stream in self.pool if not sequence.length(stream)]
            if lacking:
                raise WorkbenchError(
                    f"objective {self.name!r}: sequence {sequence.key!r} has no rows in the stream {lacking[0]!r}, "
                    "whose pooled output it reads; remove such samples from the corpus, or set pool: [text]"
                )
            label = sequence.labels.get(MATCHED, -100)
            sequence.targets[self.name] = {"labels": np.asarray([label], np.int64)}
        return {}

    def head(self, network: Network) -> Head:
        for stream in self.pool:
            if stream not in network.poolers and self.pooled_size is None:
                raise WorkbenchError(
                    f"objective {self.name!r}: the stream {stream!r} has no pooler; set model.poolers: "
                    f"[{', '.join(self.pool)}]"
                )
        return ItmHead(self.pool, self.widths(network), self.pooled_size, self.outputs)

    def widths(self, network: Network) -> dict[str, int]:
        """The width of each stream that the head reads."""
        return {name: network.sizes[name] if self.pooled_size else network.pooled_size(name) for name in self.pool}


class ItmHead(MatchingHead):
    """A linear classifier on the pooled output, or on the product of several streams' pooled outputs."""

    def __init__(
        self, pool: list[str], sizes: dict[str, int], pooled_size: int | None = None, outputs: int = 2
    ) -> None:
        super().__init__()
        if pooled_size is None and len(set(sizes.values())) != 1:
            raise WorkbenchError(f"itm: multiplied streams need the same pooled width; found {sizes}. Set pooled_size")
        self.pool = pool
        own = {name: nn.Linear(sizes[name], pooled_size) for name in pool} if pooled_size else {}
        self.poolers = nn.ModuleDict(own)
        self.classifier = nn.Linear(pooled_size or sizes[pool[0]], outputs)

    def logits(self, network: Network, states: States, batch: Batch) -> Tensor:
        """[sequences, 2]: exchanged, matched; for a head with one output the first is 0."""
        pooled = self._pooled(network, states, batch, self.pool[0])
        for stream in self.pool[1:]:
            pooled = pooled * self._pooled(network, states, batch, stream)
        logits: Tensor = self.classifier(pooled)
        return logits if logits.shape[1] == 2 else torch.cat([torch.zeros_like(logits), logits], 1)

    def match(self, network: Network, states: States, batch: Batch) -> Tensor:
        """The log-odds of a match [sequences], float32."""
        logits = self.logits(network, states, batch).float()
        return logits[:, 1] - logits[:, 0]

    def _pooled(self, network: Network, states: States, batch: Batch, stream: str) -> Tensor:
        if stream in self.poolers:
            return F.relu(self.poolers[stream](network.summary_rows(states, batch, stream)))
        return network.pool(states, batch, stream)

    def forward(self, inputs: HeadInputs) -> LossOutput:
        logits = self.logits(inputs.network, inputs.states, inputs.batch).float()
        labels = inputs.targets["labels"]
        loss = F.cross_entropy(logits, labels, reduction="sum", ignore_index=-100)
        known = labels != -100
        with torch.no_grad():
            hits = (logits.argmax(-1) == labels).sum()
        return LossOutput(loss, {"accuracy": (hits, known.sum())})


def _differ(sample: Sample, other: Sample) -> bool:
    """Whether `other` has another image, and neither's text is one of the texts of the other's image."""
    if image_id(sample) == image_id(other) or _texts(sample) & _of_image(other):
        return False
    return not _of_image(sample) & _texts(other)


def _of_image(sample: Sample) -> set[str]:
    """All texts that the record has of the sample's image."""
    siblings = (one if isinstance(one, str) else one["question"] for one in sample.get(SIBLINGS, ()))
    return {*_texts(sample), *siblings}


def _texts(sample: Sample) -> set[str]:
    return {*sample.get("captions", ()), *(question["question"] for question in sample.get("questions", ()))}


def _exchanged(sample: Sample) -> bool:
    return sample.get("labels", {}).get(MATCHED) == 0
