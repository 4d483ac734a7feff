"""A text with one marked mention, for entity typing (ERNIE-THU, arXiv:1905.07129; K-Adapter, arXiv:2002.01808)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from workbench.errors import WorkbenchError
from workbench.keyed import Draws
from workbench.options.bounds import Count, Name
from workbench.sequences.alignment import Partial, align
from workbench.sequences.builder import CUT_SPAN, TRUNCATED, Builder, missing, sample_text, sequence_of
from workbench.sequences.layout import VisibilityAlone, shifted
from workbench.sequences.sequence import Mark, Sample, Sequence
from workbench.text.tokenizer import Encoded, Tokenizer


class Mention(Builder):
    """[CLS] before <marker> mention <marker> after [SEP], for samples with `text`, `mention: [start, end]` and `types`.

    The marker stands with one space on its inner side, as in ERNIE-THU's release: its ideographic full stop by
    default, `@` for K-Adapter. The rows of the markers are special. A text that is too long keeps its beginning, or,
    where the mention would be cut, the stretch around the mention; the tokens lost are counted. So, other than in
    the release, no mention is lost by truncation.

    `Sequence.marks` has `mention` (the rows between the markers), `Sequence.meta` has `types`, and with `types` given
    the multi-hot vector `labels` [types] float32.

    Args:
        marker: text on both sides of the mention; a single token of the vocabulary.
        types: the type inventory; a sample's types outside of it are counted.
        partial: linked entities that begin or end inside a token: `cover` or `drop`.
        visibility: which tokens each one sees: all (`bidirectional`), or those up to itself (`causal`).

    Raises:
        WorkbenchError: the tokenizer does not know the marker.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: Count,
        marker: Name = "。",
        types: list[Name] | None = None,
        partial: Partial = "cover",
        visibility: VisibilityAlone = "bidirectional",
    ) -> None:
        super().__init__(tokenizer, max_length, partial=partial, visibility=visibility)
        self.marker = marker
        self.types = None if types is None else {name: i for i, name in enumerate(types)}
        known = tokenizer.encode(marker).ids
        if not len(known) or (tokenizer.has("unk") and tokenizer.id("unk") in known):
            raise WorkbenchError(
                f"the marker {marker!r} is not in the tokenizer's vocabulary; choose one that is, such as '@' or '#'"
            )

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        places = [_place(sample) for sample in samples]
        marked = [self._marked(sample["text"], *place) for sample, place in zip(samples, places, strict=True)]
        encoded = self.tokenizer.encode_batch(marked)
        return [self._sequence(*each) for each in zip(samples, places, encoded, strict=True)]

    def _marked(self, text: str, start: int, end: int) -> str:
        return f"{text[:start]}{self.marker} {text[start:end]} {self.marker}{text[end:]}"

    def _sequence(self, sample: Sample, place: tuple[int, int], encoded: Encoded) -> Sequence:
        encoded, marks = self._unmarked(encoded, *place)
        inner = align(encoded, [place]).spans
        mention = (inner[0].start, inner[0].end) if inner else (int(marks.argmax()) + 1,) * 2
        spans = self.spans(encoded, sample.get("spans", ()))
        begin, end = self._window(len(encoded), mention)
        stream, rows = self.frame.lay([encoded.part(begin, end)])
        inside = slice(rows[0], rows[0] + end - begin)
        stream["special"][inside] |= marks[begin:end]
        for field in ("char_start", "char_end"):
            stream[field][inside][marks[begin:end]] = -1
        kept = shifted(spans, rows[0], begin, end)
        if len(kept) < len(spans):
            self.dropped[CUT_SPAN] += len(spans) - len(kept)
        shift = rows[0] - begin
        found = [Mark("mention", mention[0] + shift, mention[1] + shift)]
        return sequence_of(sample, {"text": stream}, 0, kept, marks=found, meta=self._labels(sample))

    def _unmarked(self, encoded: Encoded, start: int, end: int) -> tuple[Encoded, np.ndarray]:
        """The tokens with offsets in the text without markers, and which of them are markers."""
        width = len(self.marker) + 1
        length = end - start

        def original(places: np.ndarray) -> np.ndarray:
            inner = np.clip(places - width, start, end)
            return np.where(places <= start, places, np.where(places < end + 2 * width, inner, places - 2 * width))

        left = (encoded.starts >= start) & (encoded.ends <= start + width)
        right_from = start + width + length
        right = (encoded.starts >= right_from) & (encoded.ends <= right_from + width)
        return replace(encoded, starts=original(encoded.starts), ends=original(encoded.ends)), left | right

    def _window(self, total: int, mention: tuple[int, int]) -> tuple[int, int]:
        """The token range kept: the beginning, or the stretch around the mention with its markers."""
        if total <= self.capacity:
            return 0, total
        self.dropped[TRUNCATED] += total - self.capacity
        if mention[1] + 1 <= self.capacity:
            return 0, self.capacity
        middle = (mention[0] + mention[1]) // 2
        begin = int(np.clip(middle - self.capacity // 2, 0, total - self.capacity))
        begin = min(begin, max(mention[0] - 1, 0))
        return begin, begin + self.capacity

    def _labels(self, sample: Sample) -> dict[str, Any]:
        types = list(sample.get("types", ()))
        if self.types is None:
            return {"types": types}
        known = [self.types[name] for name in types if name in self.types]
        if len(known) < len(types):
            self.dropped["type outside the inventory"] += len(types) - len(known)
        labels = np.zeros(len(self.types), np.float32)
        labels[known] = 1.0
        return {"types": types, "labels": labels}


def _place(sample: Sample) -> tuple[int, int]:
    text, mention = sample_text(sample), sample.get("mention")
    if mention is None:
        raise missing(sample, "mention", "texts with a marked mention [start, end]")
    start, end = int(mention[0]), int(mention[1])
    if not 0 <= start < end <= len(text):
        raise WorkbenchError(
            f"sample {sample.get('key', '?')!r}: mention [{start}, {end}] is not inside the text of {len(text)} "
            "characters; give half-open character offsets"
        )
    return start, end
