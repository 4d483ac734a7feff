"""How well the words around a mention fit an entity.

An entity's profile is the set of words in its names, its description, the names of its types and those of its
neighbours in the graph. A word weighs log(profiles / profiles that have it), so that common words count for nothing;
the fit is the sum over the distinct words that profile and context share. Words are kept as 32-bit hashes.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate

import numpy as np

from kg.linking.folding import fold, read
from workbench.text.segmenters import UNSPACED

WINDOW = 50  # words of context on either side of a mention
PROFILE = 512  # words of a profile at most: a country has a hundred thousand neighbours

_RANGES = "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSPACED)
_WORD = re.compile(rf"[^\W{_RANGES}]+|[{_RANGES}]")  # a character if no spaces separate the words
_PROFILE_RANGES = re.compile(f"({_WORD.pattern})")


class TextWords:
    """The words of a text that was `read`: where they are and their hashes, found when they are first asked for."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _parts(self) -> list[str]:
        """The text split into separators and words, alternately."""
        return _PROFILE_RANGES.split(fold(self.text, "ignore"))

    @cached_property
    def _starts(self) -> list[int]:
        """The beginnings of the words."""
        return list(accumulate(map(len, self._parts)))[:-1:2]

    @cached_property
    def _places(self) -> dict[int, list[int]]:
        """Which words have a hash, in their order."""
        places: dict[int, list[int]] = {}
        for place, word in enumerate(map(_hash, self._parts[1::2])):
            if word in places:
                places[word].append(place)
            else:
                places[word] = [place]
        return places

    @cached_property
    def distinct(self) -> frozenset[int]:
        """The hashes of the distinct words."""
        return frozenset(self._places)

    def near(self, words: Iterable[int], start: int, end: int) -> list[int]:
        """The hashes of the words around [start, end), without those that occur only inside."""
        before, after = bisect_left(self._starts, start), bisect_left(self._starts, end)
        first, last, places, found = before - WINDOW, after + WINDOW, self._places, []
        for word in words:
            for place in places[word]:
                if first <= place < before or after <= place < last:
                    found.append(word)
                    break
        return found


@lru_cache(1 << 17)
def _hash(word: str) -> int:
    return zlib.crc32(word.encode())


def profile_words(texts: Iterable[str]) -> np.ndarray:
    """The distinct words of some texts, the first 512: sorted hashes, uint32."""
    found: dict[int, None] = {}
    for text in texts:
        for word in _WORD.findall(fold(read(text).text, "ignore")):
            found[_hash(word)] = None
        if len(found) >= PROFILE:
            break
    return np.sort(np.array(list(found)[:PROFILE], np.uint32))


class Profiles:
    """Profiles by number: `words[offsets[i] : offsets[i + 1]]`, sorted, and a weight for each word."""

    def __init__(self, offsets: np.ndarray, words: np.ndarray, weights: np.ndarray) -> None:
        self.offsets = offsets
        self.words = words
        self.weights = weights

    @classmethod
    def build(cls, profiles: Sequence[np.ndarray]) -> Profiles:
        """From the words of each profile, as `profile_words` returns them."""
        words = np.concatenate([np.empty(0, np.uint32), *profiles])
        offsets = np.concatenate([[0], np.cumsum([len(p) for p in profiles])]).astype(np.int64)
        _, place, count = np.unique(words, return_inverse=True, return_counts=True)
        written = sum(len(profile) > 0 for profile in profiles)
        return cls(offsets, words, np.log(written / count[place]).astype(np.float32))

    def of(self, profile: int) -> tuple[np.ndarray, np.ndarray]:
        """The words of a profile, sorted hashes, and their weights."""
        part = slice(self.offsets[profile], self.offsets[profile + 1])
        return self.words[part], self.weights[part]
