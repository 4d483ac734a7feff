"""Two segments of a text: [CLS] a [SEP] b [SEP] with segments 0 and 1 (BERT, arXiv:1810.04805)."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Positive
from workbench.sequences.alignment import Partial
from workbench.sequences.builder import TRUNCATED, Builder, sample_text, sequence_of
from workbench.sequences.segments import cut_longer, in_two, one_way, segments_of
from workbench.sequences.sequence import Sample, Sequence, Span
from workbench.sequences.text_layout import LaidText, Mixture, Visibility, shifted
from workbench.text.tokenizer import Encoding, Tokenizer


class SentencePairBuilder(Builder):
    """Two segments of a text: [CLS] a [SEP] b [SEP] (BERT, arXiv:1810.04805). They are a window of a document that is
    split in two, a stored pair, or a pair that nsp or sop arranged.

    A text without two sentences becomes a single segment. Where a pair is too long, the longer segment is cut at its
    end. The first segment of a text that is split is cut at its beginning, so that the tokens around the [SEP] stay.
    Tokens lost are counted; the window leaves a tenth of the room free, so that few are.

    Args:
        chars_per_token: sets the window; by default it is measured on the corpora.
        partial: mentions that begin or end inside a token: `cover` or `drop`.
        visibility: the tokens that each token sees: all (`bidirectional`), those up to itself (`causal`), itself and
            those after it (`anticausal`), or in the second segment those up to itself and in the first one that segment
            (`prefix`). Or a mixture, each with its weight (UniLM, arXiv:1905.03197, section 2.4). Every text then gets
            one of them, and the types of its segments show which. A text that is read one way stays one segment.
        split: split a text that is no pair in two; otherwise a record is one item, in one segment where it is no pair.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: Count,
        chars_per_token: Positive | None = None,
        partial: Partial = "cover",
        visibility: Visibility | Mixture = "bidirectional",
        split: bool = True,
    ) -> None:
        super().__init__(tokenizer, max_length, partial=partial, segments=2, visibility=visibility)
        self.split = split
        self.unit = "text" if split else None
        if split:
            self.fill(int(0.9 * self.capacity), chars_per_token)

    def evaluating(self) -> SentencePairBuilder:
        """The same builder without splitting: a record is one item, in one segment where it is no pair."""
        other = copy.copy(self)
        other.split, other.unit, other.window, other.window_tokens = False, None, None, None
        other.dropped = Counter()
        return other

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        drawn = draws.numbers([tuple(sample.get("draw", ())) for sample in samples]).random()
        pairs = [self._pair(*each) for each in zip(samples, drawn.tolist(), strict=True)]
        separated = [segments_of(pair) for pair in pairs]
        texts = [sample_text({**pair, **part}) for pair, parts in zip(pairs, separated, strict=True) for part in parts]
        encoded = iter(self.tokenizer.encode_batch(texts))
        segments = [[(part, next(encoded)) for part in parts] for parts in separated]
        ranges = [self._ranges([len(text) for _, text in own]) for own in segments]
        laid = self.frame.lay_all(
            ([text.part(*kept) for (_, text), kept in zip(own, cut, strict=True)], None, pair.get("visibility"))
            for pair, own, cut in zip(pairs, segments, ranges, strict=True)
        )
        return [self._sequence(*each) for each in zip(pairs, segments, ranges, laid, strict=True)]

    def _pair(self, sample: Sample, drawn: float) -> Sample:
        whole = "second" in sample or not self.split or one_way(sample)
        return sample if whole else in_two(sample, drawn)

    def _sequence(
        self,
        sample: Sample,
        segments: list[tuple[dict[str, Any], Encoding]],
        ranges: list[tuple[int, int]],
        laid: LaidText,
    ) -> Sequence:
        stream, rows = laid
        found: dict[str, list[Span]] = {"spans": [], "mask_spans": []}
        for (segment, encoded), kept, row in zip(segments, ranges, rows, strict=True):
            for field, spans in found.items():
                aligned = self.spans(encoded, segment.get(field, ()))
                inside = shifted(aligned, row, *kept)
                if len(inside) < len(aligned):
                    self.dropped["span cut off"] += len(aligned) - len(inside)
                spans += inside
        return sequence_of(sample, {"text": stream}, 0, found["spans"], mask_spans=found["mask_spans"])

    def _ranges(self, lengths: list[int]) -> list[tuple[int, int]]:
        """The token range of each segment that is kept."""
        excess = max(0, sum(lengths) - (self.max_length - self.frame.size(len(lengths))))
        if excess:
            self.dropped[TRUNCATED] += excess
        if len(lengths) == 1:
            return [(0, lengths[0] - excess)]
        first, second = lengths
        cut_first, cut_second = cut_longer(first, second, self.capacity)
        begin = cut_first if self.split else 0
        return [(begin, begin + first - cut_first), (0, second - cut_second)]
