"""Character spans -> token rows, the same for every tokenizer.

A mention covers the rows from the first token that shares a character with it to the last one. ERNIE-THU's published
code (thunlp/ERNIE) instead assigns a mention only to a white-space-delimited word that starts where the mention starts.
So it silently loses mentions straight after "(" or a quotation mark; here they are found. Both rules agree on the first
token wherever the published code finds one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from workbench.sequences.sequence import Span
from workbench.text.tokenizer import Encoding

UNALIGNED = "unaligned span"
Partial = Literal["cover", "drop"]


class Alignment(NamedTuple):
    """`spans` in token rows, in the order given; `unaligned` counts the mentions without a token row."""

    spans: list[Span]
    unaligned: int


def align(encoded: Encoding, mentions: Iterable[Sequence], partial: Partial = "cover") -> Alignment:
    """The token rows of mentions.

    Args:
        encoded: the tokens of the text that the mentions are in.
        mentions: `[start, end, entity id, score, labels]` in characters, half-open; the fields after the offsets may be
            missing (`labels` by an objective's name: `Span`).
        partial: for a mention that begins or ends inside a token: `cover` takes the whole token, `drop` counts the
            mention as unaligned.
    """
    listed = list(mentions)
    if not listed:
        return Alignment([], 0)
    begins = np.array([m[0] for m in listed], np.int64)
    ends = np.array([m[1] for m in listed], np.int64)
    first, last = token_rows(encoded.starts, encoded.ends, begins, ends)
    found = first < last
    if partial == "drop" and len(encoded):
        inside = np.where(found, first, 0), np.where(found, last - 1, 0)
        found &= (encoded.starts[inside[0]] >= begins) & (encoded.ends[inside[1]] <= ends)
    spans = [
        Span(
            int(first[i]),
            int(last[i]),
            str(m[2]) if len(m) > 2 else "",
            float(m[3]) if len(m) > 3 else 1.0,
            labels=m[4] if len(m) > 4 else {},
        )
        for i, m in enumerate(listed)
        if found[i]
    ]
    return Alignment(spans, len(listed) - len(spans))


def token_rows(
    starts: np.ndarray, ends: np.ndarray, begins: np.ndarray, finishes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Half-open row ranges [first, last) from the first to the last token that overlaps each [begin, finish).

    `starts`, `ends` [tokens] are the tokens' characters. Tokens of no character overlap nothing, and tokens need not
    ascend (a normaliser may reorder accents). A range is empty where nothing overlaps.
    """
    if not len(starts):
        none = np.zeros(len(begins), np.int64)
        return none, none
    if (starts[1:] >= ends[:-1]).all() and (starts < ends).all():  # in order, as in most texts
        first, last = ends.searchsorted(begins, side="right"), starts.searchsorted(finishes, side="left")
        return first, last
    first = np.searchsorted(np.maximum.accumulate(ends), begins, side="right")
    last = np.searchsorted(np.minimum.accumulate(starts[::-1])[::-1], finishes, side="left")

    def misses(rows: np.ndarray) -> np.ndarray:
        rows = rows.clip(0, len(starts) - 1)
        overlap = (starts[rows] < finishes) & (ends[rows] > begins) & (starts[rows] < ends[rows])
        return (first < last) & ~overlap

    while (move := misses(first)).any():
        first = first + move
    while (move := misses(last - 1)).any():
        last = last - move
    return first, last
