"""Markers around stretches of a text, which builders put in before it is tokenised: `# head #`, `@ mention @`.

A marker stands with one space on its inner side. Offsets of the tokens stay those of the text without markers, so that
linked entities align as they would there.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Listing
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from workbench.errors import WorkbenchError
from workbench.text.tokenizer import Encoded, Tokenizer


class Marked(NamedTuple):
    """A stretch of a text [start, end) in characters, and the marker on both its sides."""

    start: int
    end: int
    marker: str


def check_markers(markers: Mapping[str, str], tokenizer: Tokenizer) -> None:
    """Whether each of the markers, which stand by the names of their stretches, is a token, and another one.

    Raises:
        WorkbenchError: one of them is not, or two are the same.
    """
    of: dict[str, str] = {}
    for name, marker in markers.items():
        known = tokenizer.encode(marker).ids.tolist()
        visible = [token for token in known if tokenizer.decode([token]).strip()]  # "▁" before it stands for a space
        if len(visible) != 1 or (tokenizer.has("unk") and tokenizer.id("unk") in known):
            raise WorkbenchError(
                f"the marker {marker!r} is not in the tokenizer's vocabulary; choose one that is for the "
                f"{name}, such as '@' or '#'"
            )
        if marker in of:
            raise WorkbenchError(
                f"the marker {marker!r} stands for the {of[marker]} and for the {name}, which nothing would tell "
                "apart; choose two, such as '#' and '@'"
            )
        of[marker] = name


def with_markers(text: str, marked: Listing[Marked]) -> str:
    """The text with the markers of its stretches, which are in order and apart."""
    parts, done = [], 0
    for place, mark in _insertions(marked):
        parts += [text[done:place], mark]
        done = place
    return "".join([*parts, text[done:]])


def without_markers(encoded: Encoded, marked: Listing[Marked]) -> tuple[Encoded, np.ndarray]:
    """The tokens of a marked text with offsets in the text without, and which of them are markers [tokens]."""
    markers = np.zeros(len(encoded), np.bool_)
    starts, ends, before = encoded.starts.copy(), encoded.ends.copy(), 0
    for place, mark in _insertions(marked):
        begin = place + before
        markers |= (encoded.starts >= begin) & (encoded.ends <= begin + len(mark))
        for original, moved in ((encoded.starts, starts), (encoded.ends, ends)):
            moved -= np.clip(original - begin, 0, len(mark))
        before += len(mark)
    return replace(encoded, starts=starts, ends=ends), markers


def window_around(total: int, capacity: int, first: int, last: int) -> tuple[int, int]:
    """At most `capacity` of `total` tokens: the beginning, or what is around the stretch [first, last) if need be.

    A stretch that is longer keeps its beginning.
    """
    if last <= capacity or total <= capacity:
        return 0, min(total, capacity)
    begin = min(max(first - (capacity - (last - first)) // 2, 0), first, total - capacity)
    return begin, begin + capacity


def _insertions(marked: Listing[Marked]) -> list[tuple[int, str]]:
    """Where in the text, and what."""
    return [each for start, end, mark in marked for each in ((start, f"{mark} "), (end, f" {mark}"))]
