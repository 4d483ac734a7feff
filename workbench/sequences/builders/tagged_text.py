"""Texts whose words have tags or heads: [CLS] text [SEP]; a text that is longer is read in overlapping windows."""

from __future__ import annotations

from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count
from workbench.sequences.alignment import Partial
from workbench.sequences.builder import Builder, sample_text, sequence_of
from workbench.sequences.segments import begins, fullest, words_of
from workbench.sequences.sequence import Sample, Sequence
from workbench.sequences.text_layout import VisibilityAlone, shifted
from workbench.text.tokenizer import Encoding, Tokenizer


class TaggedTextBuilder(Builder):
    """A text whose words have tags or dependency heads: [CLS] text [SEP]. A longer text is read in overlapping windows.

    A long text becomes several sequences, each of which begins half its room after the one before. Each word is read in
    the sequence with the most context around it. `Sequence.meta` has the sample's `tags` and `dependencies`, the places
    of its `words`, and the stretch of the text that this sequence is read for, `own`: all in characters.

    Args:
        partial: linked entities that begin or end inside a token: `cover` or `drop`.
        visibility: the tokens that each token sees: all (`bidirectional`), those up to itself (`causal`), or itself
            and those after it (`anticausal`).
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: Count,
        partial: Partial = "cover",
        visibility: VisibilityAlone = "bidirectional",
    ) -> None:
        super().__init__(tokenizer, max_length, partial=partial, visibility=visibility)

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        encoded = self.tokenizer.encode_batch([sample_text(sample) for sample in samples])
        return [s for sample, text in zip(samples, encoded, strict=True) for s in self._sequences(sample, text)]

    def _sequences(self, sample: Sample, text: Encoding) -> list[Sequence]:
        spans = self.spans(text, sample.get("spans", ()))
        firsts, places = words_of(text)
        room = self.capacity
        windows = [(begin, min(begin + room, len(text))) for begin in begins(len(text), room, max(1, room // 2))]
        owner = fullest(firsts, windows, len(text))
        read = [window for window in range(len(windows)) if (owner == window).any()] or [0]
        # tokens before the first word of a window's own belong to the window before
        edges = [0, *(int(places[owner == window][0, 0]) for window in read[1:]), len(sample_text(sample))]
        sequences = []
        for number, window in enumerate(read):
            begin, end = windows[window]
            stream, rows = self.frame.lay([text.part(begin, end)])
            meta = {"words": places, "own": (edges[number], edges[number + 1])}
            meta |= {"dependencies": sample["dependencies"]} if "dependencies" in sample else {}
            kept = shifted(spans, rows[0], begin, end)
            sequences.append(sequence_of(sample, {"text": stream}, number, kept, meta=meta))
        return sequences
