"""Sentence boundaries, and words of any script."""

from __future__ import annotations

import itertools
import re
import unicodedata

SENTENCE_END = re.compile(r"[.!?…]{1,64}[\"'”’»)\]]*\s+|[。！？；]+[”’」』）]*\s*|\n\s*")
"""Its matches end where sentences end. It takes linear time on any text, such as a million spaces."""
SPACELESS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002ffff"
"""Kana and ideographs, which are written without spaces, as ranges of a regular expression."""
_SPACELESS = re.compile(f"[{SPACELESS}]")


def words_apart(text: str) -> list[str]:
    """The words of a text: runs of letters, digits and marks; in scripts without spaces single characters."""
    spaced = _SPACELESS.sub(r" \g<0> ", text)
    return "".join(sign if unicodedata.category(sign)[0] in "LMN" else " " for sign in spaced).split()


def sentences_apart(text: str) -> list[str]:
    """The sentences of a text, stripped."""
    ends = [0, *(end.end() for end in SENTENCE_END.finditer(text)), len(text)]
    sentences = (text[begin:end].strip() for begin, end in itertools.pairwise(ends))
    return [sentence for sentence in sentences if sentence]
