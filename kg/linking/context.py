"""How well the words around a mention fit an entity.

An entity's profile is the set of words in its names, its description, the names of its types and those of its
neighbours in the graph. A word weighs log(profiles / profiles that have it), so that common words count for nothing;
the fit is the sum over the distinct words that profile and context share. Words are kept as 32-bit hashes.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from kg.linking.folding import fold, read
from kg.linking.joined_texts import JoinedTexts
from workbench.text.segmenters import UNSPACED

WINDOW = 50  # words of context on either side of a mention
PROFILE = 512  # words of a profile at most: a country has a hundred thousand neighbours

_RANGES = "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSPACED)
_WORD = re.compile(rf"[^\W{_RANGES}]+|[{_RANGES}]")  # a character if no spaces separate the words
_UNSPACED = re.compile(f"[{_RANGES}]").search
_WORDS, _ALL_WORDS = re.compile(r"(\w+)"), re.compile(f"({_WORD.pattern})")


class TextWords:
    """The words of joined texts that were `read`: where they begin, int64, and their hashes, uint32; [words]."""

    def __init__(self, texts: JoinedTexts) -> None:
        folded = fold(texts.text, "ignore")
        parts = (_WORDS if _UNSPACED(folded) is None else _ALL_WORDS).split(folded)  # separators and words, alternately
        count = len(parts) // 2
        lengths = np.fromiter(map(len, parts), np.int64, len(parts))
        self.starts = lengths.cumsum()[:-1:2]
        self.hashes = np.fromiter(map(_hash, parts[1::2]), np.uint32, count)
        self._texts = np.array(texts.starts)
        self._firsts = self.starts.searchsorted(self._texts)  # the first word of each text, and behind the last one

    def around(self, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The hashes of the words around stretches [start, end) of the texts, of their own text alone.

        Returns:
            The number of a stretch, int64, and the hash of a word near it; words that repeat are there repeatedly.
        """
        before, after = self.starts.searchsorted(starts), self.starts.searchsorted(ends)
        text = self._texts.searchsorted(starts, "right")
        first = np.maximum(before - WINDOW, self._firsts[text - 1])
        last = np.minimum(after + WINDOW, self._firsts[text])
        left = before - first
        stretches, places = ranges(left + last - after)
        places += first[stretches]
        places += np.where(places < before[stretches], 0, (after - before)[stretches])
        return stretches, self.hashes[places]


def ranges(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers 0, 1, 2 ... of each of some ranges, one range behind the other: the range of each, and the number."""
    ends = lengths.cumsum()
    of = np.arange(len(lengths)).repeat(lengths)
    return of, np.arange(len(of)) - (ends - lengths)[of]


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
