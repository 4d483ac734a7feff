"""Ends of words in scripts without spaces. Names are not found across them or inside of a word."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from workbench.text.segmenters import UNSPACED

_RUN = re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSPACED) + "]*")


class WordEnds(ABC):
    """Finds the ends of words: `kg.linking.lexicon` by a list of words, `kg.linking.segmenters` by a package."""

    def within(self, text: str, places: Iterable[int]) -> set[int]:
        """Those of the places that are between two characters of one word; in scripts with spaces none is.

        Only the stretches of such scripts are cut into words that have one of the places.
        """
        inner: set[int] = set()
        if text.isascii():
            return inner
        backwards, length, start, end = text[::-1], len(text), 0, 0
        wanted: list[int] = []
        for place in sorted(places):
            if place >= end:
                if wanted:
                    inner.update(self._within(text[start:end], start, wanted))
                    wanted = []
                start, end = length - _end(backwards, length - place), _end(text, place)
            if start < place < end:
                wanted.append(place)
        if wanted:
            inner.update(self._within(text[start:end], start, wanted))
        return inner

    @abstractmethod
    def _within(self, run: str, offset: int, wanted: Sequence[int]) -> Iterable[int]:
        """Those of the places in a run of characters of such scripts, which begins at `offset` in the text."""


def _end(text: str, place: int) -> int:
    """The end of the characters of scripts without spaces that begin at a place."""
    match = _RUN.match(text, place)
    assert match is not None, "it matches nothing, too"
    return match.end()
