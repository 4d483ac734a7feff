"""Texts with spaces between Chinese characters, as in tagging sets ("上 海 有 海 水"). Linkers read them joined."""

from __future__ import annotations

from bisect import bisect_left

Stretch = tuple[int, int]


class SplitText:
    """A text whose spaces are none: what it is without them (`joined`), and places of either in the other."""

    def __init__(self, text: str) -> None:
        self._at = [place for place, sign in enumerate(text) if not sign.isspace()]
        self.joined = "".join(text[place] for place in self._at)

    def in_joined(self, start: int, end: int) -> Stretch:
        """A stretch of the text as one of the joined text; spaces at its ends are none of it."""
        return bisect_left(self._at, start), bisect_left(self._at, end)

    def in_text(self, start: int, end: int) -> Stretch:
        """A stretch of the joined text as one of the text, with the spaces within."""
        return self._at[start], self._at[end - 1] + 1
