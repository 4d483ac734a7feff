"""Texts as names are compared in: what people read over is replaced or left out.

`fold` replaces one character by one: case, kinds of white space, of apostrophes and of dashes, full-width letters.
`read` leaves out what shifts places: signs that nobody sees (soft hyphens, joiners, marks of direction) and blanks
after blanks. The result has the original places of its characters, so that links have the offsets of the original text.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cache
from typing import Literal

import numpy as np

Case = Literal["ignore", "exact"]

SPACES = "\u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u202f\u205f\u3000"
APOSTROPHES = "\u2018\u2019\u02bc\uff07"
DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
_CONTROLS = "\t\n\r\f\v"
_PLAIN = {
    **{ord(space): " " for space in _CONTROLS + SPACES},
    **{ord(sign): "'" for sign in APOSTROPHES},
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F) if chr(code) not in APOSTROPHES + DASHES},
    **{ord(dash): "-" for dash in DASHES},
}
"""What a character is replaced by, by its number."""
_FOLDABLE = re.compile("[" + "".join(map(chr, _PLAIN)) + "]").search
_LAST = 0x20000
"""Characters from here on are of scripts without case."""
_SHORT = 64
"""A longer text is folded by a table, in a few passes over it."""

MAYBE_BREAK = "\u200b"
"""Marks where a line may break: between words ("New|York", a blank that nobody sees) and within long ones."""
INVISIBLE = "\u00ad\u061c\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
"""Soft hyphen, joiners, marks of direction, byte order mark: nobody sees them within a name."""
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
    if _FOLDABLE(text):
        text = text.translate(_PLAIN)
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
    """A text as people read it (`text`), and the places of what is left out of the text as it was, sorted."""

    def __init__(self, text: str, left_out: Sequence[int] = ()) -> None:
        self.text, self.left_out = text, left_out
        self._before = [place - number for number, place in enumerate(left_out)]  # as places of the read text

    def before(self, start: int, end: int) -> tuple[int, int]:
        """The place of a span [start, end) of the read text, not empty, in the original text."""
        return start + bisect_right(self._before, start), end + bisect_right(self._before, end - 1)

    def now(self, start: int, end: int) -> tuple[int, int]:
        """The place of a span of the original text in the read text."""
        return start - bisect_left(self.left_out, start), end - bisect_left(self.left_out, end)


def read(text: str) -> FoldedText:
    """The text without signs that nobody sees, and with one blank for several.

    A blank line stays one: what stands above and below it is no name. Where a line may break (U+200B) there is a blank
    if a capital follows a small letter or a digit, else nothing.
    """
    if is_even(text):
        return FoldedText(text)
    seen: list[str] = []
    left_out: list[int] = []
    last = 0
    for run in _UNEVEN(text):
        start, end = run.span()
        if run[0] == MAYBE_BREAK and start and _is_break(text[start - 1], text[end : end + 1]):
            kept = {start: " "}
        else:
            blanks = [place for place in range(start, end) if text[place] not in _UNSEEN]
            kept = {place: text[place] for place in (blanks if run[0].count("\n") > 1 else blanks[:1])}
        seen += text[last:start], *kept.values()
        left_out += [place for place in range(start, end) if place not in kept]
        last = end
    return FoldedText("".join([*seen, text[last:]]), left_out)


def _is_break(before: str, after: str) -> bool:
    return (before.islower() or before.isdigit()) and after.isupper()


def is_even(text: str) -> bool:
    """Whether `read` leaves nothing out, by a quick look: a text that looks uneven may yet be even."""
    if text.isprintable():  # has no control, no blank but " ", and nothing that nobody sees
        return "  " not in text
    if "  " in text or any(map(text.__contains__, _RARE)) or ("\n" in text and (" \n" in text or "\n " in text)):
        return False
    return text.isascii() or not (_HIDDEN(text) or _ODD_DOUBLED(text))


_HIDDEN = re.compile(f"[{INVISIBLE}{MAYBE_BREAK}]").search
_ODD_DOUBLED = re.compile(f"[{SPACES}][{SPACES} \n]|[ \n][{SPACES}]").search
_UNSEEN = frozenset(INVISIBLE + MAYBE_BREAK)
_BLANKS = f"[ {_CONTROLS}{SPACES}{INVISIBLE}{MAYBE_BREAK}]"
_UNEVEN = re.compile(f"{_BLANKS}(?:{_BLANKS}+|(?<=[{INVISIBLE}{MAYBE_BREAK}]))").finditer
