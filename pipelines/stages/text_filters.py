"""Filters on documents that hold for any language. Each is off unless its option is set."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pipelines.readers.reader import Drop
from workbench.core.options.bounds import CountOrZero, Share
from workbench.sequences.sequence import Sample


def own_texts(sample: Sample) -> list[str]:
    """The document's text, or its translations, or what is said in turn."""
    if "text" in sample:
        return [sample["text"]]
    return [*sample.get("translations", {}).values(), *sample.get("turns", [])]


@dataclass(frozen=True)
class MinimumLength:
    """Drops documents with fewer than `characters` characters that are not white space."""

    characters: CountOrZero = 1

    def __call__(self, sample: Sample) -> Sample | Drop:
        found = [sum(map(len, text.split())) for text in own_texts(sample)]
        if 0 in found:
            return Drop("empty")
        return sample if sum(found) >= self.characters else Drop("too short")


@dataclass(frozen=True)
class LetterShare:
    """Drops documents in which less than `minimum` of the characters that are not white space are letters.

    Letters of any script count (tables, code dumps and number lists go).
    """

    minimum: Share

    def __call__(self, sample: Sample) -> Sample | Drop:
        visible = "".join("".join(own_texts(sample)).split())
        letters = sum(map(str.isalpha, visible))
        return sample if letters >= self.minimum * len(visible) else Drop("too few letters")


@dataclass(frozen=True)
class RepeatedLines:
    """Drops documents in which more than `maximum` of the lines with text repeat an earlier line.

    Source: Rae et al. 2021 (Gopher), table A1, which uses 0.3.
    """

    maximum: Share

    def __call__(self, sample: Sample) -> Sample | Drop:
        lines = [line.strip() for text in own_texts(sample) for line in text.split("\n")]
        counts = Counter(line for line in lines if line)
        total = sum(counts.values())
        return sample if total - len(counts) <= self.maximum * total else Drop("repeated lines")
