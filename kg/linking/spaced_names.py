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

import math
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from operator import itemgetter

import ahocorasick_rs
import numpy as np

from kg.linking.boundaries import begins_word, boundary
from kg.linking.codes import BLANK, NO_SPACES, SHARED, SIGN, Codes
from kg.linking.folding import Case, fold
from kg.linking.joined_texts import JoinedTexts
from kg.linking.names import Found, NameIndex
from kg.linking.prefixes import PREFIX_ARRAYS, Prefixes, prefixes
from workbench.text.segmenters import UNSPACED

_SEVERAL, _COMPARED, _SHARED, _ANYWHERE, _LED = 1, 2, 4, 8, 16
"""Bits of a pattern: several words; signs within, or letters of shared codes; several names, or one with signs at an
end; no words; a first word that some name has signs in front of."""
_BLANKS = bytes(BLANK if code in (NO_SPACES, SIGN) else code for code in range(256))
_ANY_UNSPACED = re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSPACED) + "]")
_LOOK = 16
SPACED_ARRAYS = ("codes", "kinds", "numbers", "shorter", "counts", *PREFIX_ARRAYS)
PATIENCE = 40
"""Characters that are read by the table for each pattern before the automaton is built: that takes some 2.3 us a
pattern, and the table some 65 ns more a character."""
MOST = 600_000
"""Patterns from which on the table stays: of 390,000 the automaton reads 1.7 times as fast, of 1,160,000 the table 1.4
times as fast, with a tenth of the memory."""
_LONGEST = ahocorasick_rs.MatchKind.LeftmostLongest


def begins_unspaced(text: str) -> bool:
    """Whether a text looks by its first characters as if it were in a script without spaces."""
    first = text[:_LOOK]
    return not first.isascii() and _ANY_UNSPACED.search(first) is not None


class SpacedNames:
    """An automaton over the words of names, and those of the names without words at their beginning.

    Where its arrays come from disk, a table of the words stands in for the automaton (`kg.linking.prefixes`). Nothing
    has to be built for it. Of a dictionary of usual size it takes twice the automaton's time for a text, so that one is
    built when enough was read.
    """

    def __init__(self, names: NameIndex, case: Case, arrays: Mapping[str, np.ndarray] | None = None) -> None:
        """From names, whose arrays were saved (`arrays`) or are computed now."""
        self.names = names
        self.case: Case = case
        self._prefixes = None if arrays is None else Prefixes(arrays)
        self._patterns: list[bytes] | None = None  # until the automaton has them
        if arrays is None:
            arrays, self._patterns = _arranged(names, case)
        self._arrays = arrays
        self._codes = Codes((), case, arrays["codes"])
        kinds = arrays["kinds"]
        self._kinds = kinds.data if self._prefixes is not None else kinds.tobytes()  # bytes are looked up faster
        self._numbers, self._shorter = arrays["numbers"].data, arrays["shorter"].data
        words, unspaced = arrays["counts"].tolist()  # of patterns, and of names that begin with either
        self._first = {NO_SPACES: words, SIGN: words + unspaced}
        self._last = {NO_SPACES: words + unspaced, SIGN: len(self._numbers)}
        self._automata: dict[int, tuple[ahocorasick_rs.AhoCorasick, int]] = {}
        self._patience: float = PATIENCE * words if words <= MOST else math.inf

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that it can be opened from, by the names of `SPACED_ARRAYS`."""
        if self._prefixes is not None:
            return dict(self._arrays)
        return {**self._arrays, **prefixes(self._patterns or _arranged(self.names, self.case)[1])}

    @cached_property
    def _automaton(self) -> ahocorasick_rs.BytesAhoCorasick:
        patterns = self._patterns or list(self._prefixes or ())
        self._patterns = None
        return ahocorasick_rs.BytesAhoCorasick(patterns, matchkind=_LONGEST)

    def _proposed(self, codes: bytes) -> list[Found]:
        """Patterns in codes, from the left, without overlap: those that break words may be among them."""
        if self._prefixes is not None and self._patience >= 0:
            self._patience -= len(codes)
            return self._prefixes.find(codes)
        return self._automaton.find_matches_as_indexes(codes)

    def find(self, text: str) -> list[Found]:
        """See `kg.linking.gazetteer.Gazetteer.find`."""
        codes = self._codes(f" {text} ")
        if NO_SPACES not in codes and SIGN not in codes:
            proposed = self._proposed(codes)
        else:
            met = [code for code, first in self._first.items() if first < self._last[code] and code in codes]
            blanked = codes.translate(_BLANKS)
            proposed = self._proposed(blanked)
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
        pieces: dict[int, str] = {}  # by the place of their codes
        while place >= 0:
            stop = min(place + longest, most)  # no name that begins here ends behind it; what begins until there may
            while (later := codes.rfind(code, place, stop)) + longest > stop and stop < most:
                stop = min(later + longest, most)
            pieces[place] = text[place - 1 : stop - 1]
            place = codes.find(code, stop)
        joined, places = JoinedTexts(list(pieces.values())), list(pieces)
        for number, names in joined.by_text(automaton.find_matches_as_indexes(fold(joined.text, self.case))):
            place = places[number] - joined.starts[number]
            for pattern, start, after in names:
                yield first + pattern, place + start - 1, place + after

    def _chosen(self, text: str, codes: bytes, proposed: list[Found]) -> list[Found]:
        """The names of the proposed patterns, which are given by their places in the codes."""
        found: list[Found] = []
        end, numbers, kinds, names, ignore = 0, self._numbers, self._kinds, self.names.names, self.case == "ignore"
        for pattern, start, after in proposed:  # without the pattern's space, `start` is the place in the text
            kind = kinds[pattern]
            if not kind:
                if codes[after] == BLANK and start >= end:
                    end = after - 1
                    found.append((numbers[pattern], start, end))
                continue
            if kind >= _LED:  # a name begins with the signs in front, unless a word is right before the last one
                kind = kind - _LED if codes[start - 1] != BLANK else _LED
            if start >= end and kind < _LED:
                number, stop = -1, after - 1
                if kind == _ANYWHERE:
                    if boundary(text, start) and boundary(text, stop):
                        number = numbers[pattern]
                elif kind < _ANYWHERE and codes[after] == BLANK:
                    number = numbers[pattern]
                    name, spelt = names[number], text[start:stop]  # most texts are spelt as names but for capitals
                    if (spelt.lower() if ignore else spelt) != name:
                        number, stop = self._spelt(text, start, number)
                if number >= 0:
                    found.append((number, start, stop))
                    end = stop
                    continue
            if kind & _SEVERAL or kind >= _ANYWHERE:  # a single word hides nothing
                begin = self._begin(codes, start, end) if kind == _LED else start
                end = self._rescan(text, max(begin, end), after - 1, end, found)
        return found

    def _begin(self, codes: bytes, start: int, end: int) -> int:
        """The place where the first of the names may begin that have signs in front of this pattern."""
        begin, last = start - 1, max(end, start - self.names.longest)
        while begin > last and codes[begin] == BLANK:  # the code of the character before
            begin -= 1
        return begin

    def _rescan(self, text: str, begin: int, stop: int, end: int, found: list[Found]) -> int:
        """`NameIndex.rescan` of a text that is not folded: only what it looks at is."""
        first = max(begin - 1, 0)
        again: list[Found] = []
        folded = fold(text[first : stop + self.names.longest + 1], self.case)
        self.names.rescan(folded, begin - first, stop - first, 0, again)
        found += [(number, first + start, first + after) for number, start, after in again]
        return first + again[-1][2] if again else end

    def _spelt(self, text: str, start: int, number: int) -> tuple[int, int]:
        """The longest of a pattern's names that a text has here, -1 where it has none, and its end."""
        while number >= 0:
            stop = start + len(self.names.names[number])
            if stop <= len(text) and boundary(text, stop):
                same = self.names.number(fold(text[start:stop], self.case))  # perhaps another one that is as long
                if same >= 0:
                    return same, stop
            number = self._shorter[number]
        return -1, start

    def _automaton_of(self, code: int) -> tuple[ahocorasick_rs.AhoCorasick, int]:
        """That of the names that begin with a character of this code, and the length of the longest; built when a text
        first has one."""
        if code not in self._automata:
            numbers = self._numbers[self._first[code] : self._last[code]]
            others = [self.names.names[number] for number in numbers]
            automaton = ahocorasick_rs.AhoCorasick(others, matchkind=_LONGEST, store_patterns=False)
            self._automata[code] = automaton, max(map(len, others))
        return self._automata[code]


def _arranged(names: NameIndex, case: Case) -> tuple[dict[str, np.ndarray], list[bytes]]:
    """The arrays of names, and the patterns to look for.

    `codes` is the table of the characters' codes; `kinds` uint8 and `numbers` int32 have the bits and the longest name
    of each pattern, behind these of each name without words at its beginning; `shorter` int32 for each name a shorter
    one of its pattern, -1 for the shortest; `counts` how many patterns there are, and names that begin with a character
    of a script without spaces.
    """
    codes = Codes(names.names, case)
    spelt: dict[bytes, int] = {}  # the longest name of each pattern
    shorter = [-1] * len(names.names)
    shared: set[bytes] = set()
    compared: set[bytes] = set()
    marks: set[bytes] = set()  # patterns of names that begin with a combining mark
    led: set[bytes] = set()  # words that names have signs in front of
    led_unspaced = 0  # whether some name has signs, then a character of a script without spaces, then words
    others: dict[int, list[int]] = {NO_SPACES: [], SIGN: []}  # names by what they begin with
    signs: set[str] = set()
    for number, name in enumerate(names.names):
        coded = codes(f" {name}")
        blanked = coded.translate(_BLANKS)
        pattern = b" " + blanked.strip(b" ")  # a sign reads as the space in front of a word
        if coded[1] == NO_SPACES or pattern == b" ":
            others[coded[1] if coded[1] == NO_SPACES else SIGN].append(number)
            if coded[1] != NO_SPACES:
                signs.add(name[0])
            continue
        if pattern in spelt or len(pattern) <= len(name) or not begins_word(name[0]):
            shared.add(pattern)
            if coded[1] != BLANK and not begins_word(name[0]):
                marks.add(pattern)
            if blanked.startswith(b"  "):
                led.add(pattern.split(maxsplit=1)[0])
                led_unspaced |= NO_SPACES in coded
        elif max(pattern) >= SHARED or pattern.count(BLANK) > name.count(" ") + 1:
            compared.add(pattern)
        longer, next_one = -1, spelt.get(pattern, -1)
        while next_one >= 0 and len(names.names[next_one]) > len(name):
            longer, next_one = next_one, shorter[next_one]
        if next_one >= 0 and len(names.names[next_one]) == len(name):
            continue
        shorter[number] = next_one
        if longer < 0:
            spelt[pattern] = number
        else:
            shorter[longer] = number
    kinds = [
        _SEVERAL * (BLANK in pattern[1:] or pattern in marks)
        + _COMPARED * (pattern in compared)
        + _SHARED * (pattern in shared)
        + _ANYWHERE * (pattern in marks)
        + _LED * (pattern.split(maxsplit=1)[0] in led)
        for pattern in spelt
    ]
    kinds += [_LED * led_unspaced + _ANYWHERE] * len(others[NO_SPACES])
    kinds += [_LED + _ANYWHERE + _SEVERAL] * len(others[SIGN])
    codes.mark_signs(signs)
    arrays = {
        "codes": codes.table,
        "kinds": np.array(kinds, np.uint8),
        "numbers": np.array([*spelt.values(), *others[NO_SPACES], *others[SIGN]], np.int32),
        "shorter": np.array(shorter, np.int32),
        "counts": np.array([len(spelt), len(others[NO_SPACES])], np.int64),
    }
    return arrays, list(spelt)
