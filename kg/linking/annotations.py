"""Links that are in a corpus: what its mentions mean, or only what they may mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kg.sequences.mentions import RIGHT


def are_candidates(sample: Mapping[str, Any]) -> bool:
    """Whether the links of a record are what its mentions may mean: the linker noted it, or some are marked."""
    linker = sample.get("meta", {}).get("linker")
    noted = linker if isinstance(linker, dict) else {}
    several = noted.get("candidates", 1) > 1 or noted.get("given") == "supervise"
    return several or any(mark_of(link) is not None for link in sample.get("spans", ()))


def mark_of(link: Sequence[Any]) -> int | None:
    """Whether a candidate is marked as right (1) or wrong (0); None where nobody said it."""
    return link[4].get(RIGHT) if len(link) > 4 else None


def right_links(sample: Mapping[str, Any]) -> list[Sequence[Any]]:
    """The links of a record that say what a mention means."""
    links = list(sample.get("spans", ()))
    return [link for link in links if mark_of(link)] if are_candidates(sample) else links
