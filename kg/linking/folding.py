"""Texts as names are compared in: what the search ignores (case, kinds of white space and apostrophes) replaced."""

from __future__ import annotations

from typing import Literal

Case = Literal["ignore", "exact"]

SPACES = "\u00a0\u2007\u202f\u3000"
APOSTROPHES = "\u2018\u2019\u02bc"


def fold(text: str, case: Case) -> str:
    """The text as names are compared in: of the same length, character by character."""
    for character in "\t\n\r\f\v":
        text = text.replace(character, " ")
    if text.isascii():
        return text if case == "exact" else text.lower()
    for character in SPACES:
        text = text.replace(character, " ")
    for character in APOSTROPHES:
        text = text.replace(character, "'")
    if case == "exact":
        return text
    # U+0130 is the only character whose lower case is longer; a final sigma is spelt like any other
    return text.replace("\u0130", "i").lower().replace("\u03c2", "\u03c3")
