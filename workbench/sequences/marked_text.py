"""The base of builders of texts with marked stretches: [CLS] ... # head # ... $ tail $ ... [SEP].

The builders insert markers around stretches of a text before it is tokenised: `# head #`, `@ mention @`.

A marker has one space on its inner side. Offsets of the tokens stay those of the text without markers, so that linked
entities align as they would there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from collections.abc import Sequence as Listing
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count
from workbench.sequences.alignment import align
from workbench.sequences.builder import CUT_SPAN, TRUNCATED, Builder, TextOptions, sequence_of
from workbench.sequences.sequence import Fields, Mark, Sample, Sequence, Span
from workbench.sequences.text_layout import shifted
from workbench.text.tokenizer import Encoding, Tokenizer

Named = list[tuple[str, int, int]]  # the name of a stretch, [start, end) in characters


class MarkedText(Builder, ABC):
    """A text with markers around stretches, whose rows are `Sequence.marks`; the rows of the markers are special.

    A text that is too long keeps its beginning, or, where a stretch would be cut, the tokens around all of them. The
    tokens lost are counted, and so are samples whose stretches are too far apart for that. Linked entities (`spans`)
    are rows of the marked text.

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
        **options: Annotated[Any, TextOptions],
    ) -> None:
        super().__init__(tokenizer, max_length, **options)
        check_markers(markers, tokenizer)
        self.markers = dict(markers)

    @abstractmethod
    def stretches(self, sample: Sample) -> Named:
        """The stretches of a sample, in the order of its text, without overlaps."""

    def about(self, sample: Sample) -> dict[str, Any]:
        """The entries of a sample in `Sequence.meta`."""
        return {}

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        named = [self.stretches(sample) for sample in samples]
        marked = [[MarkedSample(start, end, self.markers[name]) for name, start, end in found] for found in named]
        texts = [with_markers(sample["text"], places) for sample, places in zip(samples, marked, strict=True)]
        encoded = self.tokenizer.encode_batch(texts)
        return [self._sequence(*each) for each in zip(samples, named, marked, encoded, strict=True)]

    def _sequence(self, sample: Sample, named: Named, marked: list[MarkedSample], encoded: Encoding) -> Sequence:
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
        """The token range that is kept."""
        if total <= self.capacity:
            return 0, total
        self.dropped[TRUNCATED] += total - self.capacity
        first, last = int(markers[0]), int(markers[-1]) + 1
        if last > self.capacity and last - first > self.capacity:
            self.dropped["mentions too far apart"] += 1
        return window_around(total, self.capacity, first, last)


class MarkedSample(NamedTuple):
    """A stretch of a text [start, end) in characters, and the marker on both its sides."""

    start: int
    end: int
    marker: str


def check_markers(markers: Mapping[str, str], tokenizer: Tokenizer) -> None:
    """Check that each of the markers, by the names of their stretches, is a token, and that they differ.

    Raises:
        WorkbenchError: one of them is not, or two are the same.
    """
    of: dict[str, str] = {}
    for name, marker in markers.items():
        known = tokenizer.encode(marker).ids.tolist()
        visible = [token for token in known if tokenizer.decode([token]).strip()]  # "▁" before it stands for a space
        if len(visible) != 1 or (tokenizer.has("unk") and tokenizer.id("unk") in known):
            raise WorkbenchError(
                f"the marker {marker!r} is not in the tokenizer's vocabulary; choose one that is, for the "
                f"{name}, such as '@' or '#'"
            )
        if marker in of:
            raise WorkbenchError(
                f"the marker {marker!r} is that of the {of[marker]} and of the {name}, so that they cannot be "
                "distinguished; choose two, such as '#' and '@'"
            )
        of[marker] = name


def with_markers(text: str, marked: Listing[MarkedSample]) -> str:
    """The text with the markers of its stretches, which are in order and do not overlap."""
    parts, done = [], 0
    for place, mark in _insertions(marked):
        parts += [text[done:place], mark]
        done = place
    return "".join([*parts, text[done:]])


def without_markers(encoded: Encoding, marked: Listing[MarkedSample]) -> tuple[Encoding, np.ndarray]:
    """The tokens of a marked text with offsets in the text without, and a mask of the markers [tokens]."""
    markers = np.zeros(len(encoded), np.bool_)
    starts, ends, before = encoded.starts.copy(), encoded.ends.copy(), 0
    for place, mark in _insertions(marked):
        begin = place + before
        markers |= (encoded.starts >= begin) & (encoded.ends <= begin + len(mark))
        for original, moved in ((encoded.starts, starts), (encoded.ends, ends)):
            moved -= np.clip(original - begin, 0, len(mark))
        before += len(mark)
    return replace(encoded, starts=starts, ends=ends), markers


def marker_before(stream: Fields, start: int) -> int | None:
    """The row of the marker before a stretch that begins at row `start`; None where there is none.

    It is the last row before the stretch that the builder added. Tokens that transforms inject are no markers.
    """
    added = np.flatnonzero(stream["special"][:start])
    return int(added[-1]) if len(added) else None


def window_around(total: int, capacity: int, first: int, last: int) -> tuple[int, int]:
    """At most `capacity` of `total` tokens: the beginning, or those around the stretch [first, last) if need be.

    A stretch that is longer keeps its beginning.
    """
    if last <= capacity or total <= capacity:
        return 0, min(total, capacity)
    begin = min(max(first - (capacity - (last - first)) // 2, 0), first, total - capacity)
    return begin, begin + capacity


def _insertions(marked: Listing[MarkedSample]) -> list[tuple[int, str]]:
    """The places of the markers in the text, and the markers."""
    return [each for start, end, mark in marked for each in ((start, f"{mark} "), (end, f" {mark}"))]
