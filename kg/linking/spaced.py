"""Finding names in texts with spaces between the words: an automaton that proposes nothing within a word.

It reads the text with a space for each character that is in no word (`kg.linking.codes`), and looks for " new york" in
it: what follows a space there begins a word, and an automaton whose patterns all begin with a space skips from one to
the next. So it need not be asked for the many names that are parts of words. What the codes hide is looked at where it
matters: a pattern may stand for several names ("saint-denis", "saint denis", "st." and "st"), or read other signs or
letters than the text has.

A character of a script without spaces is in no word either. The names that begin with one, and those that are signs
alone, have automata of their own, which are asked in the texts that have such a character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from operator import itemgetter

import ahocorasick_rs
import numpy as np

from kg.linking.boundaries import begins_word, boundary
from kg.linking.codes import BLANK, NO_SPACES, SHARED, SIGN, Codes
from kg.linking.folding import Case, fold
from kg.linking.names import Found, Names
from workbench.text.segmenters import UNSPACED

_SEVERAL, _COMPARED, _SHARED, _ANYWHERE = 1, 2, 4, 8
"""Bits of a pattern: several words; signs within, or letters of shared codes; several names, or one with signs at an
end; no words."""
_BLANKS = bytes(BLANK if code in (NO_SPACES, SIGN) else code for code in range(256))
_ANY_UNSPACED = re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSPACED) + "]")
_LOOK = 16
_LONGEST = ahocorasick_rs.MatchKind.LeftmostLongest


def begins_unspaced(text: str) -> bool:
    """Whether a text looks by its first characters as if it were in a script without spaces."""
    return not text.isascii() and _ANY_UNSPACED.search(text, 0, _LOOK) is not None


class Spaced:
    """An automaton over the words of names, and those of the names without words at their beginning."""

    def __init__(self, names: Names, case: Case) -> None:
        self.names = names
        self.case: Case = case
        codes = self._codes = Codes(names.names, case)
        spelt: dict[bytes, int] = {}  # the name of each pattern
        shared: set[bytes] = set()
        compared: set[bytes] = set()
        self._others: dict[int, list[int]] = {NO_SPACES: [], SIGN: []}  # names by what they begin with
        for number, name in enumerate(names.names):
            coded = codes(f" {name}")
            blanked = coded.translate(_BLANKS)
            pattern = blanked[blanked[1] == BLANK :].rstrip(b" ")  # a sign reads as the space in front of a word
            if coded[1] == NO_SPACES or not pattern:
                self._others[coded[1] if coded[1] == NO_SPACES else SIGN].append(number)
                continue
            if pattern in spelt or len(pattern) <= len(name) or not begins_word(name[0]):
                shared.add(pattern)
            elif max(pattern) >= SHARED or pattern.count(BLANK) > name.count(" ") + 1:
                compared.add(pattern)
            spelt.setdefault(pattern, number)
        kinds = bytes(
            _SEVERAL * (BLANK in pattern[1:]) + _COMPARED * (pattern in compared) + _SHARED * (pattern in shared)
            for pattern in spelt
        )
        others = [_ANYWHERE] * len(self._others[NO_SPACES]) + [_SEVERAL + _SHARED] * len(self._others[SIGN])
        self._kinds = kinds + bytes(others)
        self._numbers = np.array([*spelt.values(), *self._others[NO_SPACES], *self._others[SIGN]], np.int32).data
        self._first = {NO_SPACES: len(spelt), SIGN: len(spelt) + len(self._others[NO_SPACES])}
        codes.tell({names.names[number][0] for number in self._others[SIGN]})
        self._automata: dict[int, tuple[ahocorasick_rs.AhoCorasick, int]] = {}
        self._automaton = ahocorasick_rs.BytesAhoCorasick(list(spelt), matchkind=_LONGEST)

    def find(self, text: str) -> list[Found]:
        """See `kg.linking.gazetteer.Gazetteer.find`."""
        codes = self._codes(f" {text} ")
        if NO_SPACES not in codes and SIGN not in codes:
            proposed = self._automaton.find_matches_as_indexes(codes)
        else:
            met = [code for code, others in self._others.items() if others and code in codes]
            blanked = codes.translate(_BLANKS)
            proposed = self._automaton.find_matches_as_indexes(blanked)
            for code in met:
                proposed += self._beginning(code, codes, text)
            if met:
                proposed.sort(key=itemgetter(1))
            codes = blanked
        return self._chosen(text, codes, proposed) if proposed else []

    def _beginning(self, code: int, codes: bytes, text: str) -> Iterator[Found]:
        """The patterns of names that begin with a character of this code, read from such characters on alone."""
        first, (automaton, longest) = self._first[code], self._automaton_of(code)
        place, most = codes.find(code), len(codes)
        while place >= 0:
            stop = min(place + longest, most)  # no name that begins here ends behind it; what begins until there may
            while (later := codes.rfind(code, place, stop)) + longest > stop and stop < most:
                stop = min(later + longest, most)
            for pattern, start, after in automaton.find_matches_as_indexes(fold(text[place - 1 : stop - 1], self.case)):
                yield first + pattern, start + place - 1, after + place
            place = codes.find(code, stop)

    def _chosen(self, text: str, codes: bytes, proposed: list[Found]) -> list[Found]:
        """Of the proposed patterns, by their places in the codes, the names."""
        found: list[Found] = []
        folded = ""  # the text is folded as a whole when names are to be looked for again
        end, numbers, kinds = 0, self._numbers, self._kinds
        for pattern, start, after in proposed:  # without the pattern's space, `start` is the place in the text
            kind, stop = kinds[pattern], after - 1
            if not kind:
                if codes[after] == BLANK and start >= end:
                    found.append((numbers[pattern], start, stop))
                    end = stop
                continue
            if start >= end and kind < _SHARED and codes[after] == BLANK:
                number = numbers[pattern]
                if self._reads(text, start, stop, number):
                    found.append((number, start, stop))
                    end = stop
                    continue
            elif start >= end and kind == _ANYWHERE and boundary(text, start) and boundary(text, stop):
                found.append((numbers[pattern], start, stop))
                end = stop
                continue
            if kind != _COMPARED:  # a single word hides nothing
                folded = folded or fold(text, self.case)
                end = self.names.rescan(folded, start - 1, stop, end, found)
        return found

    def _reads(self, text: str, start: int, stop: int, number: int) -> bool:
        """Whether a text has this name here. Most texts are spelt as the names but for capitals: others are folded."""
        spelt, name = text[start:stop], self.names.names[number]
        return (spelt.lower() if self.case == "ignore" else spelt) == name or fold(spelt, self.case) == name

    def _automaton_of(self, code: int) -> tuple[ahocorasick_rs.AhoCorasick, int]:
        """That of the names that begin with a character of this code, and the length of the longest; built when a text
        first has one."""
        if code not in self._automata:
            others = [self.names.names[number] for number in self._others[code]]
            automaton = ahocorasick_rs.AhoCorasick(others, matchkind=_LONGEST, store_patterns=False)
            self._automata[code] = automaton, max(map(len, others))
        return self._automata[code]
