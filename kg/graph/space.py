"""Namespaces of ids: they distinguish the "1" of one graph from the "1" of another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kg.graph.strings import digest64

PATTERNS = {
    "wikidata": re.compile(r"[QPL]\d+"),
    "freebase": re.compile(r"[mg]\.[0-9a-z_]+"),
    "web": re.compile(r"https?://\S+"),
    "conceptnet": re.compile(r"/c/[a-z]{2,3}/\S+"),
}
"""Ids that mean the same wherever they stand, by the namespace that they are of."""
LOOKED_AT = 1000
MOST = 0.95
_WORD = re.compile(r"[^\W\d]")


def namespace_of(ids: Sequence[str], words: bool) -> str:
    """The namespace of ids, detected by their form; "words" if ids are `words`; empty if they may mean anything."""
    looked = [ids[i] for i in range(0, len(ids), len(ids) // LOOKED_AT + 1)]
    for name, pattern in PATTERNS.items():
        if looked and sum(pattern.fullmatch(each) is not None for each in looked) >= MOST * len(looked):
            return name
    return "words" if words and looked and sum(map(bool, map(_WORD.match, looked))) >= MOST * len(looked) else ""


def fingerprint(entities: Iterable[tuple[str, str]]) -> str:
    """A checksum of ids with their labels, in any order."""
    whole = 0
    for entity, label in entities:
        whole = (whole + digest64(f"{entity}\t{label}")) % (1 << 64)
    return f"{whole:016x}"
