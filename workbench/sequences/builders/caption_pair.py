"""Two captions with an image: [CLS] a [SEP] b [SEP] (VisualBERT, arXiv:1908.03557, section 3.3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.core.keyed import Draws
from workbench.core.options.bounds import ComponentName, ComponentSpec, Count, Name
from workbench.sequences.alignment import Partial
from workbench.sequences.builder import TRUNCATED, sequence_of
from workbench.sequences.builders.image_caption import ImageCaptionBuilder
from workbench.sequences.missing_fields import missing
from workbench.sequences.segments import cut_longer
from workbench.sequences.sequence import SIBLINGS, Sample, Sequence
from workbench.text.tokenizer import Encoding, Tokenizer


class CaptionPairBuilder(ImageCaptionBuilder):
    """Two captions with an image: [CLS] a [SEP] b [SEP] (VisualBERT, arXiv:1908.03557, section 3.3). The two captions
    of a record are drawn anew in each epoch and are the segments 0 and 1.

    The second may be exchanged for another image's (`vision.itm` with `exchange: second_caption`). Evaluation reads
    each caption by itself, as `image_caption` does.

    Args:
        image_processor: the component that makes the image stream, by import path with its options; null for captions
            alone.
        partial: mentions that begin or end inside a token: `cover` or `drop`.
        control: the recipe's; `question-only` removes the image, `shuffled-captions` exchanges the captions of the
            images of a micro-batch.
    """

    reads = ("captions",)
    segments = 2

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: Count,
        image_processor: ComponentSpec | ComponentName | None,
        partial: Partial = "cover",
        control: Name | None = None,
    ) -> None:
        super().__init__(tokenizer, max_length, image_processor, "one", partial=partial, control=control)

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        if self.captions == "each":  # evaluating
            return samples
        return [_two(sample, draws.of(tuple(sample.get("draw", ())))) for sample in samples]

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        if self.captions == "each":
            return super().__call__(samples, draws)
        samples = self.controlled(samples, draws)
        texts = [caption for sample in samples for caption in _pair(sample)]
        encoded = iter(self.tokenizer.encode_batch(texts))
        return [
            self._joined(sample, [next(encoded), next(encoded)], draws.of(tuple(sample.get("draw", ()))))
            for sample in samples
        ]

    def _joined(self, sample: Sample, encoded: list[Encoding], rng: np.random.Generator) -> Sequence:
        cuts = cut_longer(len(encoded[0]), len(encoded[1]), self.capacity)
        if any(cuts):
            self.dropped[TRUNCATED] += sum(cuts)
        ends = [len(text) - cut for text, cut in zip(encoded, cuts, strict=True)]
        stream, rows = self.frame.lay([text.part(0, end) for text, end in zip(encoded, ends, strict=True)])
        mentions: list[Any] = sample.get("caption_spans", [[], []])
        spans = [
            span
            for text, found, row, end in zip(encoded, mentions, rows, ends, strict=True)
            for span in self.kept(self.spans(text, found), row, 0, end)
        ]
        return sequence_of(sample, {"text": stream, **self.image.streams(sample, rng)}, 0, spans)


def _two(sample: Sample, rng: np.random.Generator) -> Sample:
    """The sample with two of its captions."""
    captions = sample.get("captions", ())
    if len(captions) < 2:
        raise missing(sample, "captions", f"of which there are two: this record has {len(captions)}")
    chosen = rng.choice(len(captions), 2, replace=False).tolist()
    by_caption = [name for name in ("captions", "caption_spans") if name in sample]
    return {**sample, SIBLINGS: captions, **{name: [sample[name][number] for number in chosen] for name in by_caption}}


def _pair(sample: Sample) -> list[str]:
    captions = sample.get("captions", ())
    if len(captions) != 2:
        raise missing(sample, "captions", f"of which there are two: this record has {len(captions)}")
    return list(captions)
