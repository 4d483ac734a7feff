"""Words with letters of scripts that look alike."""

from __future__ import annotations

import unicodedata

ALIKE = frozenset({"LATIN", "CYRILLIC", "GREEK"})


def mixes_scripts(label: str) -> bool:
    """Whether a word has letters of several of these scripts, as one that was typed or recognised wrongly has.

    Its letters may look like those of another label; neither is found where the other is meant.
    """
    if label.isascii():
        return False
    words = ({unicodedata.name(c, "").partition(" ")[0] for c in word if c.isalpha()} for word in label.split())
    return any(len(scripts & ALIKE) > 1 for scripts in words)
