"""Texts as names are compared in: what people read over is replaced or left out.

`fold` replaces one character by one: case, kinds of white space, of apostrophes and of dashes, full-width letters.
`read` leaves out what shifts places: signs that nobody sees (soft hyphens, joiners, marks of direction) and blanks
after blanks. The result has the original places of its characters, so that links have the offsets of the original text.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

import numpy as np

Case = Literal["ignore", "exact"]

SPACES = "\u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u202f\u205f\u3000"
APOSTROPHES = "\u2018\u2019\u02bc\uff07"
DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
_CONTROLS = "\t\n\r\f\v"
_FULL_WIDTH = {chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
_REPLACED = [
    *((space, " ") for space in SPACES),
    *((sign, "'") for sign in APOSTROPHES),
    *((dash, "-") for dash in DASHES),
]
_LAST = 0x20000
"""Characters from here on are of scripts without case."""
_SHORT = 64
"""A longer text is folded by a table, in a few passes over it."""

MAYBE_BREAK = "\u200b"
"""Marks where a line may break: between words ("New|York", a blank that nobody sees) and within long ones."""
INVISIBLE = "\u00ad\u061c\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
"""Soft hyphen, joiners, marks of direction, byte order mark: nobody sees them within a name."""
_BLANK, _UNSEEN, _EITHER, _LINE = 1, 2, 3, 4
_DOUBLED = re.compile("  ").search
_RARE = ("\t", "\r", "\f", "\v")


def fold(text: str, case: Case) -> str:
    """The text as names are compared in: of the same length, character by character."""
    if text.isascii():
        for character in _CONTROLS:
            text = text.replace(character, " ")
        return text if case == "exact" else text.lower()
    if len(text) < _SHORT:
        return _folded(text, case)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    if codes.max() >= _LAST:
        return _folded(text, case)
    return _table(case).take(codes).tobytes().decode("utf-32-le", "surrogatepass")


def _folded(text: str, case: Case) -> str:
    for character in _CONTROLS:
        text = text.replace(character, " ")
    for character, plain in _REPLACED:
        text = text.replace(character, plain)
    if not _FULL_WIDTH.keys().isdisjoint(text):
        text = "".join(_FULL_WIDTH.get(character, character) for character in text)
    if case == "exact":
        return text
    # U+0130 is the only character whose lower case is longer; a final sigma is spelt like any other
    return text.replace("\u0130", "i").lower().replace("\u03c2", "\u03c3")


@cache
def _table(case: Case) -> np.ndarray:
    """The folded form of each character, uint32."""
    folded = _folded("".join(map(chr, range(_LAST))), case)
    return np.frombuffer(folded.encode("utf-32-le", "surrogatepass"), "<u4")


class FoldedText:
    """A text as people read it (`text`), and where its characters were.

    Args:
        places: of each character in the text as it was; None where nothing was left out.
    """

    def __init__(self, text: str, places: np.ndarray | None = None) -> None:
        self.text, self.places = text, places

    def before(self, start: int, end: int) -> tuple[int, int]:
        """The place of a span [start, end) of the read text, not empty, in the original text."""
        if self.places is None:
            return start, end
        return int(self.places[start]), int(self.places[end - 1]) + 1

    def now(self, start: int, end: int) -> tuple[int, int]:
        """The place of a span of the original text in the read text."""
        if self.places is None:
            return start, end
        first, last = np.searchsorted(self.places, (start, end)).tolist()
        return first, last


def read(text: str) -> FoldedText:
    """The text without signs that nobody sees, and with one blank for several.

    A blank line stays one: what stands above and below it is no name. Where a line may break (U+200B) there is a blank
    if a capital follows a small letter or a digit, else nothing.
    """
    if _is_even(text):
        return FoldedText(text)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    kinds = _KINDS.take(codes, mode="clip")
    for place in np.flatnonzero(kinds == _EITHER).tolist():
        before, after = text[max(place - 1, 0)], text[place + 1 : place + 2]
        kinds[place] = _BLANK if (before.islower() or before.isdigit()) and after.isupper() else _UNSEEN
    places = np.flatnonzero(kinds != _UNSEEN)
    kinds = kinds[places]
    blank = (kinds == _BLANK) | (kinds == _LINE)
    again = np.zeros(len(blank), bool)
    again[1:] = blank[1:] & blank[:-1]
    runs = np.cumsum(~again)  # of blanks; other characters are runs of their own
    lines = np.bincount(runs, kinds == _LINE)
    places = places[~again | (lines[runs] > 1)]
    if len(places) == len(codes):
        return FoldedText(text)
    seen = codes[places]
    seen[seen == ord(MAYBE_BREAK)] = ord(" ")
    return FoldedText(seen.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass"), places)


def _is_even(text: str) -> bool:
    """Whether `read` leaves nothing out, by a quick look: a text that looks uneven may yet be even."""
    if _DOUBLED(text) or any(map(text.__contains__, _RARE)):
        return False
    if "\n" in text and (" \n" in text or "\n " in text):
        return False
    if text.isascii():
        return True
    if not _SUSPECT(text):
        return True
    return not _HIDDEN(text) and not _ODD_DOUBLED(text)


_HIDDEN = re.compile(f"[{INVISIBLE}{MAYBE_BREAK}]").search
_SUSPECT = re.compile(f"[{INVISIBLE}{MAYBE_BREAK}{SPACES}]").search
_ODD_DOUBLED = re.compile(f"[{SPACES}][{SPACES} \n]|[ \n][{SPACES}]").search
_KINDS = np.zeros(1 << 16, np.uint8)
_KINDS[[ord(character) for character in " \t\f\v\r" + SPACES]] = _BLANK
_KINDS[ord("\n")] = _LINE
_KINDS[[ord(character) for character in INVISIBLE]] = _UNSEEN
_KINDS[ord(MAYBE_BREAK)] = _EITHER
