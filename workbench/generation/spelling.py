"""Token ids as people read them, those of an objective's own tokens too (T5's sentinels)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from workbench.text.tokenizer import Tokenizer


class Spelling:
    """A tokenizer's words, and names of ids (`Objective.own_tokens`), whether the tokenizer has these or not."""

    def __init__(self, tokenizer: Tokenizer, names: Mapping[int, str]) -> None:
        self.tokenizer, self.names = tokenizer, names

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """A string for each id."""
        listed = [int(i) for i in ids]
        spelt = zip(listed, self.tokenizer.tokens(listed), strict=True)
        return [self.names.get(i, token) for i, token in spelt]

    def text(self, ids: Iterable[int]) -> str:
        """The text of ids without special tokens, the objective's own tokens among its words."""
        listed = [int(i) for i in ids]
        if not self.names.keys() & set(listed):
            return self.tokenizer.decode(listed)
        pieces = []
        for name, run in groupby(listed, self.names.get):
            alike = list(run)
            pieces += [self.tokenizer.decode(alike).strip()] if name is None else [name] * len(alike)
        return " ".join(filter(None, pieces))
