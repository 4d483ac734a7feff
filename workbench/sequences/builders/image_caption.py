"""A caption with its image: [CLS] caption [SEP] in the text stream, the image in the image stream."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import MinLen

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import ComponentName, ComponentSpec, Count, Name, Role, Word
from workbench.sequences.alignment import Partial
from workbench.sequences.builder import Builder, sequence_of
from workbench.sequences.image_stream import (
    NO_PARTNER,
    QUESTION_ONLY,
    SHUFFLED_CAPTIONS,
    ImageStream,
    shuffled_captions,
)
from workbench.sequences.missing_fields import missing
from workbench.sequences.sequence import Sample, Sequence, Span
from workbench.sequences.text_layout import Frame, VisibilityAlone
from workbench.text.tokenizer import Encoding, Tokenizer


class ImageCaptionBuilder(Builder):
    """A caption with its image: [CLS] caption [SEP] in the text stream, the image in the image stream.

    Args:
        image_processor: the component that makes the image stream, by import path with its options; null for captions
            alone.
        captions: `each` caption is an item of the epoch, or `one` drawn per record and epoch.
        media: where records have several images, by name (`media: {left: ..., right: ...}`), the names of those that
            are read, in this order; the embedding of the stream distinguishes them (`images: 2`). null: their `image`.
        begin, end: roles of the special tokens around the caption; null for none.
        partial: mentions that begin or end inside a token: `cover` or `drop`.
        control: the recipe's; `question-only` removes the image, `shuffled-captions` exchanges the captions of the
            images of a micro-batch.
        visibility: the tokens of the text that each token sees: all (`bidirectional`), those up to itself (`causal`),
            or itself and those after it (`anticausal`).
        target: the stream of a decoder that generates the caption; the text is then empty. null: the caption is the
            text.
    """

    controls: tuple[str, ...] = (QUESTION_ONLY, SHUFFLED_CAPTIONS)
    unaffected_by: tuple[str, ...] = ()
    segments = 1
    unit: str | None = "captions"

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: Count,
        image_processor: ComponentSpec | ComponentName | None,
        captions: Literal["each", "one"] = "each",
        media: Annotated[list[Name], MinLen(1)] | None = None,
        begin: Role | None = "cls",
        end: Role | None = "sep",
        partial: Partial = "cover",
        control: Name | None = None,
        visibility: VisibilityAlone = "bidirectional",
        target: Word | None = None,
    ) -> None:
        super().__init__(tokenizer, max_length, begin, end, partial, self.segments, visibility)
        self.image = ImageStream(image_processor, control, media)
        self.shuffled = control == SHUFFLED_CAPTIONS
        self.unit = "captions" if captions == "each" else None
        self.captions: Literal["each", "one"] = captions
        self.target = target
        self.written = Frame(tokenizer, begin, end, "causal")

    def evaluating(self) -> ImageCaptionBuilder:
        """Every caption of every image, its own under any control, without augmentation."""
        other = copy.copy(self)
        other.image, other.dropped = self.image.evaluating(), Counter()
        other.captions, other.unit, other.shuffled = "each", "captions", False
        other.controls, other.unaffected_by = (QUESTION_ONLY,), (SHUFFLED_CAPTIONS,)
        return other

    def media(self, sample: Sample) -> list[Sample]:
        """The sample as one for each medium with captions, each with its own captions: here its image."""
        return [sample]

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        samples = self.controlled(samples, draws)
        chosen = [
            (sample, part, number, rng)
            for sample in samples
            for rng in [draws.of(tuple(sample.get("draw", ())))]
            for part, number in enumerate(self._choose(sample, rng))
        ]
        encoded = self.tokenizer.encode_batch([sample["captions"][number] for sample, _, number, _ in chosen])
        texts = [self._text(sample, number, text) for (sample, _, number, _), text in zip(chosen, encoded, strict=True)]
        read = [text if self.target is None else text.part(0, 0) for text, _ in texts]
        laid = self.frame.lay_all(([text], None, None) for text in read)
        written = self.written.lay_all(([text], None, None) for text, _ in texts) if self.target is not None else []
        sequences = []
        for i, (sample, part, number, rng) in enumerate(chosen):
            stream, (row,) = laid[i]
            target = {} if self.target is None else {self.target: written[i][0]}
            streams = {"text": stream, **target, **self.image.streams(sample, rng)}
            kept = self.kept(texts[i][1], row)
            sequences.append(sequence_of(sample, streams, part, kept, meta={"caption": number}))
        return sequences

    def _text(self, sample: Sample, number: int, encoded: Encoding) -> tuple[Encoding, list[Span]]:
        """The tokens of a caption and its mentions, as far as there is room."""
        spans = self.spans(encoded, _caption_spans(sample, number)) if self.target is None else []
        return self.truncate(encoded, spans, self.capacity)

    def controlled(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        """The samples with the captions that the control assigns to them."""
        if not self.shuffled:
            return samples
        samples, lost = shuffled_captions(samples, draws)
        if lost:
            self.dropped[NO_PARTNER] += lost
        return samples

    def _choose(self, sample: Sample, rng: np.random.Generator) -> list[int]:
        captions = sample.get("captions")
        if not captions:
            raise missing(sample, "captions")
        return [int(rng.integers(len(captions)))] if self.captions == "one" else list(range(len(captions)))


def _caption_spans(sample: Sample, number: int) -> list[Any]:
    spans = sample.get("caption_spans")
    if spans is None:
        return []
    if len(spans) != len(sample["captions"]):
        raise WorkbenchError(
            f"sample {sample.get('key', '?')!r}: caption_spans has {len(spans)} lists for "
            f"{len(sample['captions'])} captions; it needs one list per caption: link the corpus again"
        )
    return list(spans[number])
