"""Filters on documents that hold for any language. Each is off unless its option is set."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pipelines.readers.reader import Drop
from workbench.options.bounds import CountOrZero, Share
from workbench.sequences.sequence import Sample


@dataclass(frozen=True)
class MinimumLength:
    """Drops documents with fewer than `characters` characters that are not white space."""

    characters: CountOrZero = 1

    def __call__(self, sample: Sample) -> Sample | Drop:
        found = sum(map(len, sample["text"].split()))
        if found == 0:
            return Drop("empty")
        return sample if found >= self.characters else Drop("too short")


@dataclass(frozen=True)
class LetterShare:
    """Drops documents in which less than `minimum` of the characters that are not white space are letters.

    Letters of any script count (tables, code dumps and number lists go).
    """

    minimum: Share

    def __call__(self, sample: Sample) -> Sample | Drop:
        visible = "".join(sample["text"].split())
        letters = sum(map(str.isalpha, visible))
        return sample if letters >= self.minimum * len(visible) else Drop("too few letters")


@dataclass(frozen=True)
class RepeatedLines:
    """Drops documents in which more than `maximum` of the lines with text repeat an earlier line.

    Source: Rae et al. 2021 (Gopher), table A1, which uses 0.3.
    """

    maximum: Share

    def __call__(self, sample: Sample) -> Sample | Drop:
        counts = Counter(line.strip() for line in sample["text"].split("\n") if line.strip())
        total = sum(counts.values())
        return sample if total - len(counts) <= self.maximum * total else Drop("repeated lines")
