"""Unicode normalisation of texts and captions."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from workbench.sequences.sequence import Sample

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff]")
LINE_END = re.compile(r"\r\n?|\x85|\u2028")
PARAGRAPH_END = re.compile("\u2029")
LINKED = frozenset({"spans", "mask_spans", "mention", "caption_spans"})


@dataclass(frozen=True)
class NormaliseText:
    """One Unicode form, `\\n` line ends, no control characters, no spaces at line ends.

    A text with character spans stays as it is, since its spans count its characters.
    """

    form: Literal["NFC", "NFKC"] = "NFC"

    def __call__(self, sample: Sample) -> Sample:
        if LINKED & sample.keys():
            return sample
        if "text" in sample:
            sample["text"] = self.normalise(sample["text"]).strip("\n")
        if "captions" in sample:
            sample["captions"] = [self.normalise(caption) for caption in sample["captions"]]
        return sample

    def normalise(self, text: str) -> str:
        """The normalised text."""
        text = PARAGRAPH_END.sub("\n\n", LINE_END.sub("\n", unicodedata.normalize(self.form, text)))
        return "\n".join(line.rstrip() for line in CONTROL.sub("", text).split("\n"))
