"""Texts as one byte a character, which the automaton of words reads: letters, and spaces for all that is in no word.

The letters beyond ASCII that are the commonest in the names have a byte each. The others share some, so that whoever
finds them by their bytes compares the characters. In return the places of bytes are the places of characters, and one
look into a table returns everything about each character.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache

import numpy as np

from kg.linking.folding import Case, fold
from workbench.text.segmenters import UNSPACED

NO_SPACES, SIGN, BLANK = 1, 2, 32
"""Codes of characters of scripts without spaces, of the signs that are asked for, and of all others in no word."""
SHARED = 192
"""The first of the codes that several letters have."""
_OWN = [code for code in range(SIGN + 1, SHARED) if not re.match(r"[\w\s]", chr(code), re.ASCII)]
_ASSIGNED = ((0, 0x20000), (0xE0000, 0xE1000))
"""The ranges of letters and marks, except for scripts without spaces."""


class Codes:
    """The codes of texts as if they were folded, by the letters of the names that are looked for in them."""

    def __init__(self, names: Iterable[str], case: Case, table: np.ndarray | None = None) -> None:
        """By names, or by the `table` that was built from them."""
        self.case: Case = case
        if table is not None:
            self._take(table)
            return
        self.table = _table().copy()
        letters: Counter[str] = Counter()
        for name in names:
            if not name.isascii():
                letters.update(name)
        common = [letter for letter, _ in letters.most_common() if self.table[ord(letter)] >= SHARED]
        for letter, code in zip(common, _OWN, strict=False):
            self.table[ord(letter)] = code
        self.mark_signs(())

    def mark_signs(self, signs: Iterable[str]) -> None:
        """Give these signs a code of their own."""
        self.table[[ord(sign) for sign in signs]] = SIGN
        characters, folded = _replaced(self.case)
        self.table[characters] = self.table[folded]
        self._take(self.table)

    def _take(self, table: np.ndarray) -> None:
        self.table, self._latin = table, table[:256].tobytes()

    def __call__(self, text: str) -> bytes:
        try:
            return text.encode("latin-1").translate(self._latin)
        except UnicodeEncodeError:
            return self.table.take(np.frombuffer(text.encode("utf-32-le"), np.uint32)).tobytes()


@cache
def _replaced(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """The characters that folding replaces, and by which."""
    last = _ASSIGNED[0][1]
    folded = fold("".join(map(chr, range(last))), case).encode("utf-32-le", "surrogatepass")
    numbers = np.frombuffer(folded, np.uint32)
    characters = np.flatnonzero(numbers != np.arange(last))
    return characters, numbers[characters]


@cache
def _table() -> np.ndarray:
    """The code of each character, where no letter beyond ASCII has one of its own."""
    places = np.arange(sys.maxunicode + 1)
    letters = np.where(places < 128, places, places % (256 - SHARED) + SHARED).astype(np.uint8)
    table = np.full(len(places), BLANK, np.uint8)
    for first, end in _ASSIGNED:
        for word in re.finditer(r"\w+", "".join(map(chr, range(first, end)))):
            part = slice(first + word.start(), first + word.end())
            table[part] = letters[part]
    for first, last in UNSPACED:
        table[first : last + 1] = NO_SPACES
    marks = [i for area in _ASSIGNED for i in range(*area) if unicodedata.category(chr(i)).startswith("M")]
    table[marks] = letters[marks]
    return table
