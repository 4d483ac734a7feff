"""Finding names in text: the longest name at each place, between word boundaries.

An Aho-Corasick automaton finds all names in one pass. Offsets are characters of the text as given: what the search
ignores (case, kinds of white space and apostrophes) is replaced character by character, never shifted.

A name begins and ends where words do (`kg.linking.boundaries`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cached_property
from typing import Literal

from kg.linking.anywhere import Anywhere
from kg.linking.names import Found, Names
from kg.linking.spaced import Spaced, begins_unspaced

Case = Literal["ignore", "exact"]

SPACES = "\u00a0\u2007\u202f\u3000"
APOSTROPHES = "\u2018\u2019\u02bc"
_SIGN = re.compile(r"[^\w\s]")


def fold(text: str, case: Case) -> str:
    """The text as names are compared in: of the same length, character by character."""
    for character in "\t\n\r\f\v":
        text = text.replace(character, " ")
    if text.isascii():
        return text if case == "exact" else text.lower()
    for character in SPACES:
        text = text.replace(character, " ")
    for character in APOSTROPHES:
        text = text.replace(character, "'")
    if case == "exact":
        return text
    # U+0130 is the only character whose lower case is longer; a final sigma is spelt like any other
    return text.replace("\u0130", "i").lower().replace("\u03c2", "\u03c3")


def spellings(name: str, case: Case) -> list[str]:
    """What to look for in folded text: the name, composed and decomposed (NFC, NFD), with single spaces.

    A name with punctuation is also spelt as tokenised texts have it, with all signs apart ("washington , d . c .").
    """
    apart = _SIGN.sub(lambda sign: sign[0] if unicodedata.combining(sign[0]) else f" {sign[0]} ", name)
    forms = [unicodedata.normalize(form, way) for way in dict.fromkeys((name, apart)) for form in ("NFC", "NFD")]
    return list(dict.fromkeys(" ".join(fold(form, case).split()) for form in forms))


class Gazetteer:
    """Finds names, as `spellings` gives them, none empty and none twice.

    There are two ways, which find the same: texts with spaces between the words are searched by an automaton that reads
    whole words (`kg.linking.spaced`), those that look otherwise by one of the names as such (`kg.linking.anywhere`).
    Each is built when a text first asks for it: its memory is paid where such texts occur.
    Pickles as its names. Names that lie on disk (`kg.graph.strings`) stay there.
    """

    def __init__(self, names: Sequence[str], case: Case) -> None:
        self.names = names
        self.case: Case = case

    def __getstate__(self) -> dict[str, object]:
        return {"names": self.names, "case": self.case}

    def find(self, folded: str) -> list[Found]:
        """(number of the name, start, end) of the names in a folded text, from left to right, without overlap.

        At each boundary, from the left: the longest name that ends at a boundary. The search goes on at its end.
        """
        return (self._anywhere if begins_unspaced(folded) else self._spaced).find(folded)

    def number(self, folded: str) -> int:
        """The number of a folded name, -1 where there is none."""
        return self._index.number(folded)

    @cached_property
    def _index(self) -> Names:
        return Names(self.names)

    @cached_property
    def _spaced(self) -> Spaced:
        return Spaced(self._index)

    @cached_property
    def _anywhere(self) -> Anywhere:
        return Anywhere(self._index)
