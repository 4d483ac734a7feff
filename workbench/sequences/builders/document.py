"""Single documents: [CLS] text [SEP]. A window longer than `max_length` becomes several sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Positive, Role
from workbench.sequences.alignment import Partial
from workbench.sequences.builder import Builder, TextOptions, sample_text, sequence_of
from workbench.sequences.length_warmup import LengthWarmup
from workbench.sequences.sequence import Fields, Sample, Sequence, Span
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
        length_warmup: shorter sequences at the start of a run; null for none.
    """

    begin: Role | None = "cls"
    end: Role | None = "sep"
    chars_per_token: Positive | None = None
    length_warmup: LengthWarmup | None = None


class _Piece(NamedTuple):
    """The tokens [begin, end) of a sample's text, its part `number`, and the spans of the whole text."""

    sample: Sample
    number: int
    text: Encoding
    begin: int
    end: int
    spans: list[Span]
    masks: list[Span]


class DocumentBuilder(Builder):
    """Single documents: [CLS] text [SEP]. A window that is longer than `max_length` becomes several sequences.

    Args:
        begin, end: roles of the special tokens around the text (GPT: `begin: bos, end: eos`); null for none.
        chars_per_token: sets the window; by default it is measured on the corpora.
        partial: mentions that begin or end inside a token: `cover` or `drop`.
        visibility: the tokens that each token sees: all (`bidirectional`), those up to itself (`causal`: GPT), or
            itself and those after it (`anticausal`).
        length_warmup: shorter sequences at the start of a run (`workbench.sequences.length_warmup`); null for none.
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
        length_warmup: LengthWarmup | None = None,
    ) -> None:
        super().__init__(tokenizer, max_length, begin, end, partial, visibility=visibility)
        self.length_warmup = length_warmup
        if length_warmup is not None:
            length_warmup.check(self.frame.size() + 1, max_length)
        self.fill(self.capacity, chars_per_token)

    def length_at(self, progress: float) -> int:
        """The greatest length of a sequence at this progress of the run (0 to 1)."""
        return self.max_length if self.length_warmup is None else self.length_warmup.at(progress, self.max_length)

    @classmethod
    def like(cls, builder: Builder, max_length: int | None = None) -> DocumentBuilder:
        """A builder of single texts with the frame and visibility of another builder (`prefix`: `bidirectional`), and
        with its `max_length` or another one."""
        frame = builder.frame
        alone: VisibilityAlone = "bidirectional" if frame.visibility == "prefix" else frame.visibility
        return cls(builder.tokenizer, max_length or builder.max_length, *frame.roles, visibility=alone)

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        encoded = self.tokenizer.encode_batch([sample_text(sample) for sample in samples])
        room = self.capacity - self.max_length + self.length_at(draws.progress)
        parts = zip(samples, encoded, strict=True)
        pieces = [piece for sample, text in parts for piece in self._pieces(sample, text, room)]
        laid = self.frame.lay_all(([piece.text.part(piece.begin, piece.end)], None, None) for piece in pieces)
        return [self._sequence(piece, stream, row) for piece, (stream, (row,)) in zip(pieces, laid, strict=True)]

    def _pieces(self, sample: Sample, text: Encoding, room: int) -> list[_Piece]:
        """The stretches of at most `room` tokens of a text that become sequences."""
        if not len(text.ids) + self.frame.size():
            self.dropped["empty text"] += 1
            return []
        spans = self.spans(text, sample.get("spans", ()))
        masks = self.spans(text, sample.get("mask_spans", ()))
        parts = cut_segments(text, room, [*spans, *masks])
        return [_Piece(sample, number, text, *part, spans, masks) for number, part in enumerate(parts)]

    def _sequence(self, piece: _Piece, stream: Fields, row: int) -> Sequence:
        begin, end = piece.begin, None if piece.end == len(piece.text.ids) else piece.end
        kept = self.kept(piece.spans, row, begin, end)
        hidden = self.kept(piece.masks, row, begin, end)
        return sequence_of(piece.sample, {"text": stream}, piece.number, kept, mask_spans=hidden)
