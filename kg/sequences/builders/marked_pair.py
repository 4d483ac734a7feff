"""A text with two marked mentions, for the relation between them (ERNIE-THU, arXiv:1905.07129, section 4.4)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from workbench.errors import WorkbenchError
from workbench.keyed import Draws
from workbench.options.bounds import Count, Name
from workbench.sequences.alignment import Partial
from workbench.sequences.builder import CUT_SPAN, TRUNCATED, Builder, missing, sample_text, sequence_of
from workbench.sequences.layout import VisibilityAlone, shifted
from workbench.sequences.sequence import Sample, Sequence
from workbench.text.tokenizer import Encoded, Tokenizer

Place = tuple[int, int, str]  # [start, end) in characters, the marker on both sides
Inserted = list[tuple[int, str]]  # where in the text, and what


class MarkedPair(Builder):
    """[CLS] ... # head # ... $ tail $ ... [SEP], for samples whose `marks` name a head and a tail.

    A marker stands with a space on its inner side; its rows are special. A text that is too long keeps its beginning,
    or, where a mention would be cut, the stretch around both; the tokens lost are counted, and so are mentions that lie
    too far apart for that. Linked entities (`spans`) are rows of the marked text.

    Args:
        head, tail: the markers; each a single token of the vocabulary.
        partial: linked entities that begin or end inside a token: `cover` or `drop`.
        visibility: which tokens each one sees: all (`bidirectional`), or those up to itself (`causal`).

    Raises:
        WorkbenchError: the tokenizer does not know a marker.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: Count,
        head: Name = "#",
        tail: Name = "$",
        partial: Partial = "cover",
        visibility: VisibilityAlone = "bidirectional",
    ) -> None:
        super().__init__(tokenizer, max_length, partial=partial, visibility=visibility)
        self.markers = {"head": head, "tail": tail}
        for marker in self.markers.values():
            known = tokenizer.encode(marker).ids
            if not len(known) or (tokenizer.has("unk") and tokenizer.id("unk") in known):
                raise WorkbenchError(
                    f"the marker {marker!r} is not in the tokenizer's vocabulary; choose one that is (`head`, `tail`)"
                )

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        insertions = [self._insertions(sample) for sample in samples]
        texts = [_with(sample["text"], inserted) for sample, inserted in zip(samples, insertions, strict=True)]
        encoded = self.tokenizer.encode_batch(texts)
        return [self._sequence(*each) for each in zip(samples, insertions, encoded, strict=True)]

    def _insertions(self, sample: Sample) -> Inserted:
        """Where the markers go, in the order of the text."""
        text = sample_text(sample)
        found: dict[str, Place] = {}
        for start, end, name in sample.get("marks", ()):
            if name in self.markers and name not in found:
                found[name] = (start, end, self.markers[name])
        if len(found) < len(self.markers):
            raise missing(
                sample, "marks", "texts with a marked head and tail: [[start, end, head], [start, end, tail]]"
            )
        first, second = sorted(found.values())
        if first[1] > second[0] or not 0 <= first[0] < first[1] or not second[0] < second[1] <= len(text):
            raise WorkbenchError(
                f"sample {sample.get('key', '?')!r}: head and tail {found} overlap, or lie outside the text of "
                f"{len(text)} characters; give half-open character offsets of two different mentions"
            )
        return [each for start, end, mark in (first, second) for each in ((start, f"{mark} "), (end, f" {mark}"))]

    def _sequence(self, sample: Sample, inserted: Inserted, encoded: Encoded) -> Sequence:
        encoded, markers = _without(encoded, inserted)
        spans = self.spans(encoded, sample.get("spans", ()))
        begin, end = self._window(len(encoded), np.flatnonzero(markers))
        stream, rows = self.frame.lay([encoded.part(begin, end)])
        inside = slice(rows[0], rows[0] + end - begin)
        stream["special"][inside] |= markers[begin:end]
        for field in ("char_start", "char_end"):
            stream[field][inside][markers[begin:end]] = -1
        kept = shifted(spans, rows[0], begin, end)
        if len(kept) < len(spans):
            self.dropped[CUT_SPAN] += len(spans) - len(kept)
        return sequence_of(sample, {"text": stream}, 0, kept)

    def _window(self, total: int, markers: np.ndarray) -> tuple[int, int]:
        """The token range kept: the beginning, or the stretch from the first marker to the last."""
        if total <= self.capacity:
            return 0, total
        self.dropped[TRUNCATED] += total - self.capacity
        first, last = int(markers[0]), int(markers[-1]) + 1
        if last <= self.capacity:
            return 0, self.capacity
        if last - first > self.capacity:
            self.dropped["mentions too far apart"] += 1
        begin = min(max(first - (self.capacity - (last - first)) // 2, 0), first, total - self.capacity)
        return begin, begin + self.capacity


def _with(text: str, inserted: Inserted) -> str:
    parts, done = [], 0
    for place, mark in inserted:
        parts += [text[done:place], mark]
        done = place
    return "".join([*parts, text[done:]])


def _without(encoded: Encoded, inserted: Inserted) -> tuple[Encoded, np.ndarray]:
    """The tokens with offsets in the text without markers, and which of them are markers."""
    markers = np.zeros(len(encoded), np.bool_)
    starts, ends, before = encoded.starts.copy(), encoded.ends.copy(), 0
    for place, mark in inserted:
        begin = place + before
        markers |= (encoded.starts >= begin) & (encoded.ends <= begin + len(mark)) & (encoded.ends > encoded.starts)
        for original, moved in ((encoded.starts, starts), (encoded.ends, ends)):
            moved -= np.clip(original - begin, 0, len(mark))
        before += len(mark)
    return replace(encoded, starts=starts, ends=ends), markers
