"""The stage that tags the words of a text with their part of speech and polarity, by a lexicon."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kg.lexicons.sentiment_lexicon import UNKNOWN, SentimentLexicon, read_sentiment_lexicon
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import sha256_of
from workbench.sequences.sequence import Sample

WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


@dataclass(frozen=True)
class TagSentiment:
    """Writes `tags` such as `a:negative` of the words in the lexicon, and the lexicon's identity into `meta.sentiment`.

    Args:
        lexicon: the file.
        sha256: its checksum.
    """

    lexicon: str
    sha256: str

    def __call__(self, sample: Sample) -> Sample:
        table = _lexicon(self.lexicon, self.sha256)
        found = ((m.start(), m.end(), table.of(m.group())) for m in WORD.finditer(sample.get("text", "")))
        tags = [[start, end, known.tag] for start, end, known in found if known != UNKNOWN]
        meta = {**sample.get("meta", {}), "sentiment": {"lexicon_sha256": self.sha256}}
        return {**sample, "tags": tags, "meta": meta}


@lru_cache(maxsize=1)
def _lexicon(path: str, sha256: str) -> SentimentLexicon:
    """
    Raises:
        WorkbenchError: the file has changed since.
    """
    if sha256_of(Path(path)) != sha256:
        raise WorkbenchError(f"the lexicon {path} changed while it was in use; restore it, or start again")
    return read_sentiment_lexicon(path)
