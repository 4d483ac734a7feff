"""Single documents: [CLS] text [SEP]. A window longer than `max_length` becomes several sequences."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Positive, Role
from workbench.sequences.alignment import Partial
from workbench.sequences.builder import Builder, TextOptions, sample_text, sequence_of
from workbench.sequences.sequence import Sample, Sequence
from workbench.sequences.text_layout import VisibilityAlone, cut_segments
from workbench.text.tokenizer import Encoding, Tokenizer


@dataclass(frozen=True)
class DocumentOptions(TextOptions):
    """The options that builders of documents share.

    Attributes:
        partial: mentions that begin or end inside a token: `cover` or `drop`.
        visibility: the tokens that each token sees: all (`bidirectional`), those up to itself (`causal`), or itself and
            those after it (`anticausal`).
        begin, end: roles of the special tokens around the text (GPT: `begin: bos, end: eos`); null for none.
        chars_per_token: sets the window; by default it is measured on the corpora.
    """

    begin: Role | None = "cls"
    end: Role | None = "sep"
    chars_per_token: Positive | None = None


class DocumentBuilder(Builder):
    """Single documents: [CLS] text [SEP]. A window that is longer than `max_length` becomes several sequences.

    Args:
        begin, end: roles of the special tokens around the text (GPT: `begin: bos, end: eos`); null for none.
        chars_per_token: sets the window; by default it is measured on the corpora.
        partial: mentions that begin or end inside a token: `cover` or `drop`.
        visibility: the tokens that each token sees: all (`bidirectional`), those up to itself (`causal`: GPT), or
            itself and those after it (`anticausal`).
    """

    unit = "text"

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: Count,
        begin: Role | None = "cls",
        end: Role | None = "sep",
        chars_per_token: Positive | None = None,
        partial: Partial = "cover",
        visibility: VisibilityAlone = "bidirectional",
    ) -> None:
        super().__init__(tokenizer, max_length, begin, end, partial, visibility=visibility)
        self.fill(self.capacity, chars_per_token)

    @classmethod
    def like(cls, builder: Builder) -> DocumentBuilder:
        """A builder of single texts with the frame and visibility of another builder (`prefix`: `bidirectional`)."""
        frame = builder.frame
        alone: VisibilityAlone = "bidirectional" if frame.visibility == "prefix" else frame.visibility
        return cls(builder.tokenizer, builder.max_length, *frame.roles, visibility=alone)

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        encoded = self.tokenizer.encode_batch([sample_text(sample) for sample in samples])
        return [s for sample, text in zip(samples, encoded, strict=True) for s in self._sequences(sample, text)]

    def _sequences(self, sample: Sample, encoded: Encoding) -> list[Sequence]:
        spans = self.spans(encoded, sample.get("spans", ()))
        masks = self.spans(encoded, sample.get("mask_spans", ()))
        parts = cut_segments(encoded, self.capacity, [*spans, *masks])
        sequences = []
        for number, (begin, end) in enumerate(parts):
            stream, rows = self.frame.lay([encoded.part(begin, end)])
            if not len(stream["input_ids"]):
                self.dropped["empty text"] += 1
                continue
            last = None if end == len(encoded) else end
            kept = self.kept(spans, rows[0], begin, last)
            hidden = self.kept(masks, rows[0], begin, last)
            sequences.append(sequence_of(sample, {"text": stream}, number, kept, mask_spans=hidden))
        return sequences
