"""Windows of tokens over a long text, which overlap, so that what one of them cuts is whole in another."""

from __future__ import annotations

import numpy as np

from workbench.text.tokenizer import Encoded


def begins(length: int, room: int, stride: int) -> list[int]:
    """Where windows of `room` tokens begin that cover a text of `length`: the last one reaches its end."""
    found = [0]
    while found[-1] + room < length:
        found.append(found[-1] + min(stride, room))
    return found


def fullest(rows: np.ndarray, windows: list[tuple[int, int]], length: int) -> np.ndarray:
    """Of each row the window [begin, end) in which it has most rows on its poorer side, by its place in `windows`
    (BERT's release calls it the max context). Nothing is missing beyond either end of the text.

    Args:
        rows: [rows], ascending, each in some window.
        length: rows of the text.
    """
    begin, end = np.array(windows, np.int64).T[:, :, None]
    before = np.where(begin == 0, length, rows - begin)
    behind = np.where(end == length, length, end - 1 - rows)
    context = np.where((rows >= begin) & (rows < end), np.minimum(before, behind), -1)
    best: np.ndarray = context.argmax(axis=0)
    return best


def words_of(encoded: Encoded) -> tuple[np.ndarray, np.ndarray]:
    """A text's words: the first token of each [words], and where it stands in the text [words, 2].

    What a tokenizer makes several words of a single character of is one word; white space alone is none.
    """
    firsts: list[int] = []
    places: list[tuple[int, int]] = []
    seen = np.flatnonzero((encoded.pretokens >= 0) & (encoded.ends > encoded.starts))
    cuts = np.flatnonzero(np.diff(encoded.pretokens[seen])) + 1
    for tokens in np.split(seen, cuts) if len(seen) else ():
        start, end = int(encoded.starts[tokens].min()), int(encoded.ends[tokens].max())
        if not places or start >= places[-1][1]:
            firsts.append(int(tokens[0]))
            places.append((start, end))
        elif end > places[-1][1]:
            places[-1] = (places[-1][0], end)
    return np.array(firsts, np.int64), np.array(places, np.int64).reshape(-1, 2)
