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
from functools import cached_property

import numpy as np

from kg.linking.folding import fold, read
from workbench.text.segmenters import UNSPACED

WINDOW = 50  # words of context on either side of a mention
PROFILE = 512  # words of a profile at most: a country has a hundred thousand neighbours

_RANGES = "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSPACED)
_WORD = re.compile(rf"[^\W{_RANGES}]+|[{_RANGES}]")  # a character where no spaces part the words


class Words:
    """The words of a text that was `read`: where they are and their hashes, found when they are first asked for."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _words(self) -> tuple[list[int], np.ndarray]:
        matches = list(_WORD.finditer(fold(self.text, "ignore")))
        hashes = np.array([zlib.crc32(m.group().encode()) for m in matches], np.uint32)
        return [m.start() for m in matches], hashes

    def around(self, start: int, end: int) -> np.ndarray:
        """The distinct words around [start, end), without those in it: sorted hashes, uint32."""
        starts, hashes = self._words
        before, after = bisect_left(starts, start), bisect_left(starts, end)
        near = np.concatenate([hashes[max(0, before - WINDOW) : before], hashes[after : after + WINDOW]])
        return np.unique(near)


def profile_words(texts: Iterable[str]) -> np.ndarray:
    """The distinct words of some texts, the first 512: sorted hashes, uint32."""
    found: dict[int, None] = {}
    for text in texts:
        for word in _WORD.findall(fold(read(text).text, "ignore")):
            found[zlib.crc32(word.encode())] = None
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
        """From the words of each profile, as `profile_words` gives them."""
        words = np.concatenate([np.empty(0, np.uint32), *profiles])
        offsets = np.concatenate([[0], np.cumsum([len(p) for p in profiles])]).astype(np.int64)
        _, place, count = np.unique(words, return_inverse=True, return_counts=True)
        written = sum(len(profile) > 0 for profile in profiles)
        return cls(offsets, words, np.log(written / count[place]).astype(np.float32))

    def fit(self, profile: int, context: np.ndarray) -> float:
        """The sum of the weights of the words that a profile shares with a context (sorted hashes)."""
        lo, hi = self.offsets[profile], self.offsets[profile + 1]
        words = self.words[lo:hi]
        if not len(words) or not len(context):
            return 0.0
        place = np.minimum(np.searchsorted(words, context), len(words) - 1)
        return float(self.weights[lo:hi][place[words[place] == context]].sum())
