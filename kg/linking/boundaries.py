"""Boundaries: names begin and end at the ends of words.

Scripts written without spaces (Han, kana, Thai, Lao, Khmer, Burmese) have no such boundaries: there a name may begin
and end anywhere, but never in front of a combining mark.

A name that begins with a sign and continues with a word (".NET") is none right behind a word ("ASP.NET"): there the
sign joins two words of another name.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from kg.linking.folding import fold
from workbench.text.segmenters import unspaced

# How a character holds on to the next one, and to the one before: they are joined where the two have bits in common.
# Bit 1 joins the characters of a word, bit 2 a combining mark to a letter of an unspaced script; what is in no word has
# none. The tables are filled as characters are met (`meet`); they are plain dicts because nothing is looked up as fast.
AFTER: dict[str, int] = {}
BEFORE: dict[str, int] = {}


def meet(characters: Iterable[str]) -> None:
    """Have characters in the tables, as what they are folded to."""
    for character in characters:
        folded = fold(character, "ignore")
        if unicodedata.category(folded).startswith("M"):
            AFTER[character], BEFORE[character] = 1, 3
        elif unspaced(folded):
            AFTER[character], BEFORE[character] = 2, 0
        else:
            AFTER[character] = BEFORE[character] = int(folded.isalnum() or folded == "_")


meet(map(chr, range(128)))


def in_word(character: str) -> bool:
    """Whether a character may stand within a word of a script with spaces: a letter, a digit, "_", a mark on one."""
    if character not in AFTER:
        meet(character)
    return AFTER[character] == 1


def begins_word(character: str) -> bool:
    """Whether a word of a script with spaces may begin with a character."""
    return in_word(character) and BEFORE[character] == 1


def boundary(text: str, i: int) -> bool:
    """Whether a name may begin or end in front of character `i`."""
    if i == 0 or i == len(text):
        return True
    try:
        return not AFTER[text[i - 1]] & BEFORE[text[i]]
    except KeyError:
        meet(text[i - 1 : i + 1])
        return boundary(text, i)


def joins(text: str, i: int) -> bool:
    """Whether character `i` is a sign between two words: names of more than this sign don't begin there."""
    if not 0 < i < len(text) - 1 or not in_word(text[i - 1]) or not in_word(text[i + 1]):
        return False
    return is_sign(text[i])


def is_sign(character: str) -> bool:
    """Whether a character is in no word, nor of a script without spaces."""
    if character not in AFTER:
        meet(character)
    return AFTER[character] == 0
