"""The base class of sequence builders: samples of one micro-batch -> sequences.

A builder never loses text silently. A window that is longer than `max_length` tokens becomes several sequences, and
tokens lost by truncation or alignment are counted by reason. The draw of a sequence is that of its sample with the
number of the sequence, so that the generators of hooks differ between the sequences of a sample.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Listing
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Role
from workbench.sequences.alignment import UNALIGNED, Partial, align
from workbench.sequences.missing_fields import missing
from workbench.sequences.sequence import Sample, Sequence, Span
from workbench.sequences.text_layout import Frame, Mixture, Visibility, VisibilityAlone, shifted
from workbench.text.tokenizer import Encoding, Tokenizer

TRUNCATED = "truncated tokens"
CUT_SPAN = "span cut off"


@dataclass(frozen=True)
class TextOptions:
    """The options that builders of single texts share.

    Attributes:
        partial: mentions that begin or end inside a token: `cover` or `drop`.
        visibility: the tokens that each token sees: all (`bidirectional`), those up to itself (`causal`), or itself and
            those after it (`anticausal`).
    """

    partial: Partial = "cover"
    visibility: VisibilityAlone = "bidirectional"


@dataclass(frozen=True)
class PairOptions:
    """The options that builders of pairs share.

    Attributes:
        partial: mentions that begin or end inside a token: `cover` or `drop`.
        visibility: as of single texts, or `prefix`: in the second segment the tokens up to itself, in the first segment
            those of that segment (UniLM, arXiv:1905.03197).
    """

    partial: Partial = "cover"
    visibility: Visibility = "bidirectional"


class Builder:
    """Base of the sequence builders.

    `unit` is the field that the reader cuts items from: None (a record is an item), `text`, `captions`, `questions` or
    `triples`. `reads` names other fields that every sample must have: a corpus without one is refused before the first
    step. `provides` names fields that its sequences do not need from the samples, as the builder has their values.
    `window` is the greatest length of a text item in characters (None: not cut). With `window_tokens` it is the length
    of that many tokens in the corpora, which the reader measures. `reads_spans` says that the builder itself adds
    knowledge from the entities linked to the text, as a transform may (`Transform`). `medium` names the option for the
    component that makes the stream of an image, a video, ...; `caption_builder` is the builder that reads one caption
    with such a medium, which downstream tasks use. `usual_visibility` is that of texts where the recipe states none.

    Args:
        tokenizer: given by the recipe.
        max_length: tokens of the text stream, special ones included.
        begin, end: roles of the special tokens around segments; None for none.
        partial: mentions that begin or end inside a token: `cover` or `drop`.
        segments: the most segments of a sequence.
        visibility: the rows of the text that each row sees; the same wherever the run reads text. A mixture draws one
            of its visibilities for each training sample. Elsewhere texts are then read in both directions, unless a
            sample has a `visibility` of its own.
    """

    unit: str | None = None
    reads: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    window: int | None = None
    window_tokens: int | None = None
    reads_spans: bool = False
    pairs: bool = False
    medium: str = "image_processor"
    caption_builder: str = "image_caption"
    usual_visibility: Visibility = "bidirectional"

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: Count,
        begin: Role | None = "cls",
        end: Role | None = "sep",
        partial: Partial = "cover",
        segments: int = 1,
        visibility: Visibility | Mixture = "bidirectional",
    ) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.frame = Frame(tokenizer, begin, end, visibility)
        self.partial = partial
        self.capacity = max_length - self.frame.size(segments)
        self.dropped: Counter[str] = Counter()
        if self.capacity < segments:
            raise WorkbenchError(
                f"max_length = {max_length} leaves no room for text next to {self.frame.size(segments)} special "
                f"tokens; use at least {self.frame.size(segments) + segments}"
            )

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        """Draws for samples before the objectives arrange them: with a mixture, their visibility."""
        names, weights = list(self.frame.mixture), np.array(list(self.frame.mixture.values()))
        if not names:
            return samples
        shares = weights / weights.sum()
        return [{**s, "visibility": str(draws.of(tuple(s.get("draw", ()))).choice(names, p=shares))} for s in samples]

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        """The sequences of one micro-batch; every sample yields at least one, or a count in `dropped`."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__")

    def evaluating(self) -> Self:
        """This builder for evaluation: every item unchanged, without augmentation. By default the builder itself.

        A builder that draws (a crop, a caption, where to cut) returns another one of its class that doesn't.
        """
        return self

    def take_dropped(self) -> dict[str, int]:
        """The counts of losses since the last call, by reason."""
        dropped, self.dropped = dict(self.dropped), Counter()
        return dropped

    def fill(self, tokens: int, chars_per_token: float | None) -> None:
        """Set the window to this number of tokens, by the given or the measured number of characters for each."""
        if chars_per_token is None:
            self.window_tokens = max(1, tokens)
        else:
            self.window = max(1, int(tokens * chars_per_token))

    def spans(self, encoded: Encoding, mentions: Listing[Any]) -> list[Span]:
        """Mentions in characters as token rows of `encoded`; those without a row are counted."""
        if not mentions:
            return []
        aligned = align(encoded, mentions, self.partial)
        if aligned.unaligned:
            self.dropped[UNALIGNED] += aligned.unaligned
        return aligned.spans

    def kept(self, spans: list[Span], row: int, begin: int = 0, end: int | None = None) -> list[Span]:
        """The spans of the tokens [begin, end), laid out from `row`; those that `end` cuts are counted."""
        if not spans:
            return []
        kept = shifted(spans, row, begin, end)
        divided = 0 if end is None else sum(begin <= s.start < end < s.end for s in spans)
        if divided:
            self.dropped[CUT_SPAN] += divided
        return kept

    def truncate(self, encoded: Encoding, spans: list[Span], size: int) -> tuple[Encoding, list[Span]]:
        """The first `size` tokens and the spans in them; lost tokens and spans are counted."""
        lost = len(encoded) - size
        if lost <= 0:
            return encoded, spans
        kept = shifted(spans, 0, 0, size)
        self.dropped[TRUNCATED] += lost
        if len(spans) > len(kept):
            self.dropped[CUT_SPAN] += len(spans) - len(kept)
        return encoded.part(0, size), kept


def sample_text(sample: Sample) -> str:
    """The text of a sample.

    Raises:
        WorkbenchError: it has none (the corpus is of another kind).
    """
    text = sample.get("text")
    if not isinstance(text, str):
        raise missing(sample, "text")
    return text


def sequence_of(sample: Sample, streams: dict[str, Any], part: int, spans: list[Span], **more: Any) -> Sequence:
    """The part-th sequence of a sample, in the group of all of them; `meta` has the sample's `tags`, in characters."""
    group = tuple(sample.get("draw", ()))
    labels = dict(sample.get("labels", {}))
    if "tags" in sample:
        more["meta"] = {"tags": sample["tags"], **more.get("meta", {})}
    more = {"languages": (sample["language"],) if "language" in sample else (), **more}
    return Sequence(streams, (*group, part), str(sample.get("key", "")), spans, labels, group=group, **more)
