"""Finding names in text: the longest name at each place, between word boundaries.

One Aho-Corasick automaton finds all names in one pass. Offsets are characters of the text as given: what the search
ignores (case, kinds of white space and apostrophes) is replaced character by character, never shifted.

A name ends where a word ends. Scripts written without spaces (Han, kana, Thai, Lao, Khmer, Burmese) have no such
boundaries: there a name matches anywhere, but never in front of a combining mark.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Literal

import ahocorasick_rs
import numpy as np

Case = Literal["ignore", "exact"]
Found = tuple[int, int, int]
PREFIX = 6

SPACES = "\u00a0\u2007\u202f\u3000"
APOSTROPHES = "\u2018\u2019\u02bc"
UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x312F),  # radicals, kana, Bopomofo
    (0x31F0, 0x31FF),  # small kana
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9F),  # halfwidth kana
    (0x20000, 0x3FFFF),
)
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


def unspaced(character: str) -> bool:
    """Whether a character belongs to a script that is written without spaces between words."""
    code = ord(character)
    return code >= UNSPACED[0][0] and any(first <= code <= last for first, last in UNSPACED)


# How a character holds on to the next one, and to the one before: they are joined where the two have bits in common.
# Bit 1 joins the characters of a word, bit 2 a combining mark to a letter of an unspaced script. The tables are filled
# as characters are met (`_meet`); they are plain dicts because nothing is looked up as fast.
_AFTER: dict[str, int] = {}
_BEFORE: dict[str, int] = {}


def _meet(characters: Iterable[str]) -> None:
    for character in characters:
        if unicodedata.category(character).startswith("M"):
            _AFTER[character], _BEFORE[character] = 1, 3
        elif unspaced(character):
            _AFTER[character], _BEFORE[character] = 2, 0
        else:
            _AFTER[character] = _BEFORE[character] = int(character.isalnum() or character == "_")


_meet(map(chr, range(128)))

# The same for Latin-1 characters, as one byte each, which is looked up faster yet: two characters of a word have both
# bits of `_IN_WORD` in common. Other characters are spelt "?": where that has a bit in common, the tables decide.
_IN_WORD, _OTHER = 0b011, 0b110
_CODES = bytes(_OTHER if c == "?" else _IN_WORD * (c.isalnum() or c == "_") for c in map(chr, range(256)))


def boundary(text: str, i: int) -> bool:
    """Whether a name may begin or end in front of character `i`."""
    if i == 0 or i == len(text):
        return True
    try:
        return not _AFTER[text[i - 1]] & _BEFORE[text[i]]
    except KeyError:
        _meet(text[i - 1 : i + 1])
        return boundary(text, i)


class Gazetteer:
    """An automaton over names, as `spellings` gives them, none empty and none twice.

    Pickles as its names: the automaton is built again, when it is first used. Names that lie on disk
    (`kg.graph.strings`) stay there: then it is the automaton's memory and some 15 bytes a name.
    """

    def __init__(self, names: Sequence[str], case: Case) -> None:
        self.names = names
        self.case: Case = case
        self._automaton: ahocorasick_rs.AhoCorasick | None = None
        self._hashes, self._order = memoryview(b""), memoryview(b"")  # of the names, sorted, and their numbers
        self._lengths: dict[str, tuple[int, ...]] = {}  # of the names with a prefix, longest first
        self._short: tuple[int, ...] = ()  # of the names shorter than a prefix
        self._several_words = b""  # whether there is a boundary within the name

    def __getstate__(self) -> dict[str, object]:
        built: dict[str, object] = {
            "_automaton": None,
            "_hashes": b"",
            "_order": b"",
            "_lengths": {},
            "_several_words": b"",
        }
        return {**vars(self), **built}

    def find(self, folded: str) -> list[Found]:
        """(number of the name, start, end) of the names in a folded text, from left to right, without overlap.

        At each boundary, from the left: the longest name that ends at a boundary. The search goes on at its end.
        """
        if self._automaton is None:
            self._build()
        assert self._automaton is not None
        try:
            return self._find(folded, self._automaton.find_matches_as_indexes(folded))
        except KeyError:
            _meet(set(folded))
            return self.find(folded)

    def _find(self, folded: str, proposed: list[Found]) -> list[Found]:
        """Raises KeyError: the text has characters that are not in the tables."""
        found: list[Found] = []
        end, several_words, after, before = 0, self._several_words, _AFTER, _BEFORE
        codes = b"\0" + folded.encode("latin-1", "replace").translate(_CODES) + b"\0"  # codes[i] is in front of i
        for match in proposed:
            number, start, stop = match
            if start >= end:
                joined = codes[start] & codes[start + 1]
                if not joined or (joined != _IN_WORD and not after[folded[start - 1]] & before[folded[start]]):
                    joined = codes[stop] & codes[stop + 1]
                    if not joined or (joined != _IN_WORD and not after[folded[stop - 1]] & before[folded[stop]]):
                        found.append(match)
                        end = stop
                        continue
            if several_words[number]:
                end = self._rescan(folded, start, stop, end, found)
        return found

    def number(self, folded: str) -> int:
        """The number of a folded name, -1 where there is none."""
        if self._automaton is None:
            self._build()
        wanted = hash(folded)
        place = bisect_left(self._hashes, wanted)
        while place < len(self._hashes) and self._hashes[place] == wanted:
            number = self._order[place]
            if self.names[number] == folded:
                return number
            place += 1
        return -1

    def _rescan(self, folded: str, start: int, stop: int, end: int, found: list[Found]) -> int:
        """The names that begin in [start, stop), where the automaton proposed one that breaks a word or overlaps.

        It may hide others: a shorter one at its start, and those that begin at a boundary within it. A name of one
        word has no boundary within and hides nothing.
        """
        for i in range(start, stop):
            if i >= end and folded[i] != " " and (not i or not _AFTER[folded[i - 1]] & _BEFORE[folded[i]]):
                match = self._longest_at(folded, i)
                if match is not None:
                    found.append(match)
                    end = match[2]
        return end

    def _longest_at(self, folded: str, start: int) -> Found | None:
        lengths = self._lengths.get(folded[start : start + PREFIX], ())
        for length in (*lengths, *self._short):
            stop = start + length
            if stop <= len(folded) and boundary(folded, stop):
                number = self.number(folded[start:stop])
                if number >= 0:
                    return number, start, stop
        return None

    def _build(self) -> None:
        hashes = np.fromiter(map(hash, self.names), np.int64, len(self.names))  # of this process
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._order = hashes[order].data, order.astype(np.int32).data
        self._several_words = bytes(any(boundary(name, i) for i in range(1, len(name))) for name in self.names)
        lengths: dict[str, set[int]] = {}
        for name in self.names:
            if len(name) >= PREFIX:
                lengths.setdefault(name[:PREFIX], set()).add(len(name))
        self._lengths = {prefix: tuple(sorted(found, reverse=True)) for prefix, found in lengths.items()}
        self._short = tuple(sorted({len(name) for name in self.names if len(name) < PREFIX}, reverse=True))
        self._automaton = ahocorasick_rs.AhoCorasick(
            self.names, matchkind=ahocorasick_rs.MatchKind.LeftmostLongest, store_patterns=False
        )
