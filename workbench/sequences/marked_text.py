"""What the builders of texts with marked stretches share: [CLS] ... # head # ... $ tail $ ... [SEP]."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np

from workbench.keyed import Draws
from workbench.options.bounds import Count
from workbench.sequences.alignment import align
from workbench.sequences.builder import CUT_SPAN, TRUNCATED, Builder, TextOptions, sequence_of
from workbench.sequences.layout import shifted
from workbench.sequences.markers import Marked, check_markers, window_around, with_markers, without_markers
from workbench.sequences.sequence import Mark, Sample, Sequence, Span
from workbench.text.tokenizer import Encoded, Tokenizer

Named = list[tuple[str, int, int]]  # the name of a stretch, [start, end) in characters


class MarkedText(Builder, ABC):
    """A text with markers around stretches, whose rows are `Sequence.marks`; the rows of the markers are special.

    A text that is too long keeps its beginning, or, where a stretch would be cut, what is around all of them; the
    tokens lost are counted, and so are stretches that lie too far apart for that. Linked entities (`spans`) are rows of
    the marked text.

    Args:
        markers: by the name of a stretch the text on both its sides; each a single token of the vocabulary.
        options: those of every builder of single texts, `workbench.sequences.builder.TextOptions`.

    Raises:
        WorkbenchError: the tokenizer does not know a marker.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: Count,
        markers: Mapping[str, str],
        **options: Unpack[TextOptions],
    ) -> None:
        super().__init__(tokenizer, max_length, **options)
        check_markers(markers, tokenizer)
        self.markers = dict(markers)

    @abstractmethod
    def stretches(self, sample: Sample) -> Named:
        """The stretches of a sample, in the order of its text and apart."""

    def about(self, sample: Sample) -> dict[str, Any]:
        """What `Sequence.meta` says of a sample."""
        return {}

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        named = [self.stretches(sample) for sample in samples]
        marked = [[Marked(start, end, self.markers[name]) for name, start, end in found] for found in named]
        texts = [with_markers(sample["text"], places) for sample, places in zip(samples, marked, strict=True)]
        encoded = self.tokenizer.encode_batch(texts)
        return [self._sequence(*each) for each in zip(samples, named, marked, encoded, strict=True)]

    def _sequence(self, sample: Sample, named: Named, marked: list[Marked], encoded: Encoded) -> Sequence:
        encoded, markers = without_markers(encoded, marked)
        begin, end = self._window(len(encoded), np.flatnonzero(markers))
        stream, (row,) = self.frame.lay([encoded.part(begin, end)])
        special = row + np.flatnonzero(markers[begin:end])
        stream["special"][special] = True
        stream["char_start"][special] = stream["char_end"][special] = -1
        spans = self.spans(encoded, sample.get("spans", ()))
        kept = shifted(spans, row, begin, end)
        if len(kept) < len(spans):
            self.dropped[CUT_SPAN] += len(spans) - len(kept)
        found: list[Span] = align(encoded, [(start, end, name) for name, start, end in named]).spans
        marks = [Mark(span.entity, span.start, span.end) for span in shifted(found, row, begin, end)]
        return sequence_of(sample, {"text": stream}, 0, kept, marks=marks, meta=self.about(sample))

    def _window(self, total: int, markers: np.ndarray) -> tuple[int, int]:
        """The token range kept."""
        if total <= self.capacity:
            return 0, total
        self.dropped[TRUNCATED] += total - self.capacity
        first, last = int(markers[0]), int(markers[-1]) + 1
        if last > self.capacity and last - first > self.capacity:
            self.dropped["mentions too far apart"] += 1
        return window_around(total, self.capacity, first, last)
