"""Finding names in text: the longest name at each place, between word boundaries.

An Aho-Corasick automaton finds all names in one pass. Offsets are characters of the text as given: what the search
ignores (case, kinds of white space, of apostrophes and of dashes) is replaced character by character, never shifted.
What shifts places, invisible signs and doubled blanks, is left out before (`kg.linking.folding.read`).

A name begins and ends where words do (`kg.linking.boundaries`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from kg.graph.strings import open_array
from kg.linking.folding import Case, fold, read
from kg.linking.names import NAME_ARRAYS, Found, NameIndex
from kg.linking.spaced_names import SPACED_ARRAYS, SpacedNames, begins_unspaced
from kg.linking.unspaced_names import UnspacedNames
from kg.linking.word_ends import WordEnds

_NAMES, _SPACED = "search_names_", "search_words_"
"""How the files begin that are saved."""
_SIGN = re.compile(r"[^\w\s]")


def spellings(name: str, case: Case) -> list[str]:
    """The spellings of a name to search in folded text: composed and decomposed (NFC, NFD), with single spaces.

    A name with punctuation is also spelt as tokenised texts have it, with all signs apart ("washington , d . c .").
    """
    name = read(name).text
    apart = _SIGN.sub(lambda sign: sign[0] if unicodedata.combining(sign[0]) else f" {sign[0]} ", name)
    forms = [unicodedata.normalize(form, way) for way in dict.fromkeys((name, apart)) for form in ("NFC", "NFD")]
    return list(dict.fromkeys(" ".join(fold(form, case).split()) for form in forms))


class Gazetteer:
    """Finds names, as `spellings` returns them, none empty and none twice.

    There are two ways, which find the same: texts with spaces between the words are searched by an automaton that reads
    whole words (`kg.linking.spaced_names`), those that look otherwise by one of the names as such
    (`kg.linking.unspaced_names`).
    Each is built when a text first asks for it: its memory is paid where such texts occur.
    Pickles as its names. Names that lie on disk (`kg.graph.strings`) stay there, and so does what was saved with them
    (`save`): all processes share it.
    """

    def __init__(self, names: Sequence[str], case: Case, saved: Path | None = None) -> None:
        """From names, with the files that `save` wrote to the folder `saved`."""
        self.names = names
        self.case: Case = case
        self._saved = saved

    def save(self, folder: Path) -> None:
        """Write what the search needs, so that nothing is to be built when a text is read."""
        for room, arrays in ((_NAMES, self._index.arrays), (_SPACED, self._spaced.arrays())):
            for part, array in arrays.items():
                np.save(folder / f"{room}{part}.npy", array)

    def __getstate__(self) -> dict[str, object]:
        return {"names": self.names, "case": self.case, "_saved": None}

    def find(self, text: str, words: WordEnds | None = None) -> list[Found]:
        """(number of the name, start, end) of the names in a text that was `read`, from the left, without overlap.

        At each boundary, from the left: the longest name that ends at a boundary. The search continues at its end.

        Args:
            words: finds the words of scripts without spaces. Inside of one there is no boundary.
        """
        found = self._anywhere.find(fold(text, self.case)) if begins_unspaced(text) else self._spaced.find(text)
        return found if words is None or not found else self._whole(fold(text, self.case), found, words)

    def _whole(self, folded: str, found: list[Found], words: WordEnds) -> list[Found]:
        """The names between words, of those that were found without looking at words.

        Where one of these begins or ends inside of a word, others begin that it hid: shorter ones, and those that
        begin within it.
        """
        inner = words.within(folded, [place for _, start, stop in found for place in (start, stop)])
        if not inner:
            return found
        whole: list[Found] = []
        end = 0
        for name in found:
            _, start, stop = name
            if start >= end and start not in inner and stop not in inner:
                whole.append(name)
                end = stop
            else:
                within = words.within(folded, range(start, min(stop + self._index.longest, len(folded))))
                end = self._index.rescan(folded, start, stop, end, whole, within)
        return whole

    def number(self, folded: str) -> int:
        """The number of a folded name, -1 where there is none."""
        return self._index.number(folded)

    def _opened(self, room: str, parts: Sequence[str]) -> dict[str, np.ndarray] | None:
        return None if self._saved is None else {part: open_array(self._saved, room + part) for part in parts}

    @cached_property
    def _index(self) -> NameIndex:
        return NameIndex(self.names, self._opened(_NAMES, NAME_ARRAYS))

    @cached_property
    def _spaced(self) -> SpacedNames:
        return SpacedNames(self._index, self.case, self._opened(_SPACED, SPACED_ARRAYS))

    @cached_property
    def _anywhere(self) -> UnspacedNames:
        return UnspacedNames(self._index)
