"""Which mentions may carry knowledge, and what people said of them."""

from __future__ import annotations

from workbench.sequences.sequence import Sequence, Span

RIGHT = "right"
"""The label of a linked span (`Span.labels`) that says whether its entity is the one that is meant: 1 or 0."""


def hidden(span: Span, sequence: Sequence) -> bool:
    """Whether a mention shares a row with a stretch that is to be masked (`Sequence.mask_spans`)."""
    return any(
        span.start < mask.end and mask.start < span.end and span.stream == mask.stream for mask in sequence.mask_spans
    )
