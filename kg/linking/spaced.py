"""Finding names in texts with spaces between the words: an automaton that proposes nothing within a word.

It reads the text with a space for each character that is in no word, and looks for " new york" in it: what follows a
space there begins a word, and an automaton whose patterns all begin with a space skips from one to the next. So it need
not be asked for the many names that are parts of words. What the spaces hide is looked at where it matters: a pattern
may stand for several names ("saint-denis", "saint denis", "st." and "st"), or read other signs than the text has.

A character of a script without spaces is in no word either. The names that begin with one, or with a sign, have
automata of their own, which are asked in the texts that have such a character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from operator import itemgetter

import ahocorasick_rs
import numpy as np

from kg.linking.boundaries import UNSPACED, begins_word, in_word, unspaced
from kg.linking.names import Found, Names

_SEVERAL, _SIGNS, _SHARED = 1, 2, 4
"""Bits of a pattern: several words; signs within its name; several names, or one with signs at the end."""
_BLANKS = bytes(code if code > 127 or in_word(chr(code)) else 32 for code in range(256))
_PLAIN = bytes(code for code in range(128) if in_word(chr(code)) or code == 32)
_ANY_UNSPACED = re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSPACED) + "]")
_LOOK = 16
_KNOWN = set(map(chr, range(128)))
"""Those of ASCII, and what has been met in words beyond."""


def begins_unspaced(text: str) -> bool:
    """Whether a text looks by its first characters as if it were in a script without spaces."""
    start = text[:_LOOK]
    return not start.isascii() and _ANY_UNSPACED.search(start) is not None


class Spaced:
    """An automaton over the words of names, and those of the names that begin otherwise."""

    def __init__(self, names: Names) -> None:
        self.names = names
        spelt: dict[str, int] = {}  # the name of each pattern
        signed: set[str] = set()
        shared: set[str] = set()
        self._others: dict[bool, list[str]] = {True: [], False: []}  # by whether an unspaced character is their first
        for number, name in enumerate(names.names):
            if not begins_word(name[0]):
                self._others[unspaced(name[0]) and not in_word(name[0])].append(name)  # a mark is met in words
                continue
            core = _padded(name.encode(), set(name))[0].strip(" ")
            if core in spelt or len(core) < len(name):
                shared.add(core)
            elif core != name:
                signed.add(core)
            spelt.setdefault(core, number)
        self._numbers = np.fromiter(spelt.values(), np.int32, len(spelt)).data
        self._kinds = bytes(
            _SEVERAL * (" " in core) + _SIGNS * (core in signed) + _SHARED * (core in shared) for core in spelt
        )
        self._automaton = _automaton(f" {core}" for core in spelt)
        self._sign_automaton = _automaton(self._others[False])
        self._first_signs = frozenset(name[0] for name in self._others[False])

    def find(self, folded: str) -> list[Found]:
        """The names in a folded text: see `kg.linking.gazetteer.Gazetteer.find`."""
        encoded = folded.encode()
        met = set(encoded.translate(None, _PLAIN).decode())
        padded, has_unspaced = _padded(encoded, met)
        proposed = self._automaton.find_matches_as_indexes(padded) if self._automaton is not None else []
        if not self._first_signs.isdisjoint(met):
            proposed = _merged(proposed, self._sign_automaton, folded)
        if has_unspaced:
            proposed = _merged(proposed, self._unspaced_automaton, folded)
        return self._chosen(folded, padded, proposed) if proposed else []

    def _chosen(self, folded: str, padded: str, proposed: list[Found]) -> list[Found]:
        """Of the proposed patterns, by their places in the padded text, the names."""
        found: list[Found] = []
        end, names, numbers, kinds = 0, self.names.names, self._numbers, self._kinds
        for pattern, start, after in proposed:  # without the pattern's space, `start` is the place in the text
            kind = kinds[pattern] if pattern >= 0 else _SEVERAL | _SHARED
            if start >= end:
                if not kind:
                    if padded[after] == " ":
                        end = after - 1
                        found.append((numbers[pattern], start, end))
                    continue
                if kind < _SHARED and padded[after] == " ":
                    number = numbers[pattern]
                    if folded[start : after - 1] == (names[number] if kind & _SIGNS else padded[start + 1 : after]):
                        end = after - 1
                        found.append((number, start, end))
                        continue
            elif not kind & _SEVERAL:
                continue
            end = self.names.rescan(folded, start, after - 1, end, found)
        return found

    @cached_property
    def _unspaced_automaton(self) -> ahocorasick_rs.AhoCorasick | None:
        return _automaton(self._others[True])


def _merged(proposed: list[Found], automaton: ahocorasick_rs.AhoCorasick | None, folded: str) -> list[Found]:
    """What is proposed, and by another automaton, of names and without padding; in the order of their starts."""
    more = [] if automaton is None else automaton.find_matches_as_indexes(folded)
    places = [(-1, start, stop + 1) for _, start, stop in more]
    return sorted(proposed + places, key=itemgetter(1)) if places else proposed


def _padded(encoded: bytes, met: set[str]) -> tuple[str, bool]:
    """A text with a space for every character that is in no word, and a space around it; has it unspaced characters?

    Args:
        met: characters among which are all those of the text that are not `_KNOWN`.
    """
    padded, has_unspaced = (b" " + encoded + b" ").translate(_BLANKS).decode(), False
    for character in met - _KNOWN:
        if in_word(character):
            _KNOWN.add(character)
        else:
            padded = padded.replace(character, " ")
            has_unspaced = has_unspaced or unspaced(character)
    return padded, has_unspaced


def _automaton(patterns: Iterable[str]) -> ahocorasick_rs.AhoCorasick | None:
    listed = list(patterns)
    if not listed:
        return None
    return ahocorasick_rs.AhoCorasick(listed, matchkind=ahocorasick_rs.MatchKind.LeftmostLongest, store_patterns=False)
