"""Selection of the mentions that carry knowledge, and labels of mentions."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Ordered
from typing import Any

from workbench.sequences.sequence import Sequence, Span

RIGHT = "right"
"""The label of a linked span (`Span.labels`) that says whether its entity is the one that is meant: 1 or 0."""


def hidden(span: Span, sequence: Sequence) -> bool:
    """Whether a mention shares a row with a stretch that is to be masked (`Sequence.mask_spans`)."""
    return bool(sequence.mask_spans) and any(
        span.start < mask.end and mask.start < span.end and span.stream == mask.stream for mask in sequence.mask_spans
    )


def noted_linker(sample: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record of `prepare link` about the linker of a sample's links and its options; empty if there is none."""
    linker = sample.get("meta", {}).get("linker")
    return linker if isinstance(linker, dict) else {}


def are_candidates(sample: Mapping[str, Any]) -> bool:
    """Whether the links of a record are what its mentions may mean: the linker noted it, or some are marked."""
    noted = noted_linker(sample)
    several = noted.get("candidates", 1) > 1 or noted.get("given") == "supervise"
    return several or any(mark_of(link) is not None for link in sample.get("spans", ()))


def mark_of(link: Ordered[Any]) -> int | None:
    """Whether a candidate is marked as right (1) or wrong (0); None where nobody said it."""
    return link[4].get(RIGHT) if len(link) > 4 else None


def right_links(sample: Mapping[str, Any]) -> list[Ordered[Any]]:
    """The links of a record that say what a mention means."""
    links = list(sample.get("spans", ()))
    return [link for link in links if mark_of(link)] if are_candidates(sample) else links
