"""Stages on texts: Unicode normalisation, the language of a text, and filters on documents.

The filters work for any language. Each is off unless its option is set.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from pipelines.readers.reader import Drop
from workbench.core.options.bounds import CountOrZero, Share, Word
from workbench.corpora.schema.field_values import TEXT, TEXTS, TEXTS_BY_NAME
from workbench.corpora.schema.schema import FIELDS
from workbench.sequences.sequence import Sample

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff]")
LINE_END = re.compile(r"\r\n?|\x85|\u2028")
PARAGRAPH_END = re.compile("\u2029")


@dataclass(frozen=True)
class NormaliseText:
    """One Unicode form, `\\n` line ends, no control characters, no spaces at line ends.

    A sample with character spans is not changed, since they count the characters of its texts.
    """

    form: Literal["NFC", "NFKC"] = "NFC"

    def __call__(self, sample: Sample) -> Sample:
        fields = [FIELDS[name] for name in sample if name in FIELDS]
        if any(field.spans_of for field in fields):
            return sample
        for name in (field.name for field in fields if field.value is TEXT):
            sample[name] = self.normalise(sample[name]).strip("\n")
        for name in (field.name for field in fields if field.value is TEXTS):
            sample[name] = [self.normalise(text) for text in sample[name]]
        for name in (field.name for field in fields if field.value is TEXTS_BY_NAME):
            sample[name] = {language: self.normalise(text).strip("\n") for language, text in sample[name].items()}
        return sample

    def normalise(self, text: str) -> str:
        """The normalised text."""
        text = PARAGRAPH_END.sub("\n\n", LINE_END.sub("\n", unicodedata.normalize(self.form, text)))
        return "\n".join(line.rstrip() for line in CONTROL.sub("", text).split("\n"))


@dataclass(frozen=True)
class SetLanguage:
    """Adds the `language` of every text whose record does not state it."""

    language: Word

    def __call__(self, sample: Sample) -> Sample:
        return {**sample, "language": self.language} if "text" in sample and "language" not in sample else sample


def own_texts(sample: Sample) -> list[str]:
    """The text of the document, its translations, or its turns."""
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
