"""Finding names in any text: an automaton of the names as they are, which proposes them within words too."""

from __future__ import annotations

import sys
import unicodedata
from operator import itemgetter

import ahocorasick_rs

from kg.linking.boundaries import AFTER, BEFORE, boundary, in_word, is_sign, joins, meet
from kg.linking.names import Found, NameIndex

# The tables for Latin-1 characters, as one byte each, which is looked up faster yet: two characters of a word have both
# bits of `_IN_WORD` in common. Other characters are spelt "?": where that has a bit in common, the tables decide.
_IN_WORD, _OTHER = 0b011, 0b110
_CODES = bytes(_OTHER if c == "?" else _IN_WORD * (c.isalnum() or c == "_") for c in map(chr, range(256)))

_MARKS = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)).startswith("M")]


class UnspacedNames:
    """An automaton over the spellings of all names."""

    def __init__(self, names: NameIndex) -> None:
        self.names = names
        spelt = names.names
        meet({name[place] for name in spelt for place in (0, -1)})
        # Names of scripts without spaces are names wherever they stand, but in front of a combining mark. So that finds
        # of such names alone need no look at the text, the automaton finds marks too.
        marks = sorted(set(_MARKS).difference(spelt))
        self._bound = bytes(BEFORE[name[0]] > 0 or AFTER[name[-1]] == 1 for name in spelt) + bytes([1]) * len(marks)
        self._joining = bytes(len(name) > 1 and is_sign(name[0]) and in_word(name[1]) for name in spelt)
        self._several_words = bytes(any(boundary(name, i) for i in range(1, len(name))) for name in spelt)
        self._automaton = ahocorasick_rs.AhoCorasick(
            [*spelt, *marks], matchkind=ahocorasick_rs.MatchKind.LeftmostLongest, store_patterns=False
        )

    def find(self, folded: str) -> list[Found]:
        """The names in a folded text: see `kg.linking.gazetteer.Gazetteer.find`."""
        proposed = self._automaton.find_matches_as_indexes(folded)
        if not any(map(self._bound.__getitem__, map(itemgetter(0), proposed))):
            return proposed  # none overlaps another
        proposed = [match for match in proposed if match[0] < len(self.names.names)]
        try:
            return self._find(folded, proposed)
        except KeyError:
            meet(set(folded))
            return self._find(folded, proposed)

    def _find(self, folded: str, proposed: list[Found]) -> list[Found]:
        """Raises KeyError: the text has characters that are not in the tables."""
        found: list[Found] = []
        end, several_words, after, before = 0, self._several_words, AFTER, BEFORE
        codes = b"\0" + folded.encode("latin-1", "replace").translate(_CODES) + b"\0"  # codes[i] is in front of i
        for match in proposed:
            number, start, stop = match
            if start >= end:
                joined = codes[start] & codes[start + 1]
                if not joined or (joined != _IN_WORD and not after[folded[start - 1]] & before[folded[start]]):
                    joined = codes[stop] & codes[stop + 1]
                    if (
                        not joined or (joined != _IN_WORD and not after[folded[stop - 1]] & before[folded[stop]])
                    ) and not (self._joining[number] and joins(folded, start)):
                        found.append(match)
                        end = stop
                        continue
            if several_words[number]:
                end = self.names.rescan(folded, start, stop, end, found)
        return found
