"""Unicode normalisation of texts, captions and what else people read."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from workbench.corpora.schema.field_values import TEXT, TEXTS, TEXTS_BY_NAME
from workbench.corpora.schema.schema import FIELDS
from workbench.sequences.sequence import Sample

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff]")
LINE_END = re.compile(r"\r\n?|\x85|\u2028")
PARAGRAPH_END = re.compile("\u2029")


@dataclass(frozen=True)
class NormaliseText:
    """One Unicode form, `\\n` line ends, no control characters, no spaces at line ends.

    A sample with character spans stays as it is, since they count the characters of its texts.
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
