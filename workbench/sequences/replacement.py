"""The replacement of tokens to be predicted (BERT, arXiv:1810.04805, section 3.1): a mask token, another one, itself.

Or, instead of mask tokens, those of a similar word (MacBERT, arXiv:2004.13922, section 3.2: masked language modelling
as correction). It is the option `replace` of every objective that masks tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Location, Share
from workbench.sequences.sequence import Fields
from workbench.text.similar_words import SimilarWords
from workbench.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class ReplacementOptions:
    """The tokens that replace selected tokens, and how often.

    Attributes:
        mask, random: shares of the selected tokens that become the mask token and a random ordinary one; the rest
            stays.
        per: whether that is drawn for each `token` (BERT), each `word`, or each `group` of the masking strategy (of
            SpanBERT's paper: each span).
        similar: file of similar words (`prepare similar-words`): each word becomes a similar one instead of mask
            tokens. One without a similar word, or whose tokens are not all selected, becomes random tokens. Requires
            `per: word`.
    """

    mask: Share = 0.8
    random: Share = 0.1
    per: Literal["token", "word", "group"] = "token"
    similar: Location | None = None


USUAL = ReplacementOptions()


class TokenReplacement:
    """Replaces tokens with mask tokens, random ordinary tokens or similar words.

    Args:
        codes: where the rows are not tokens of the tokenizer, but codes of another vocabulary (visual tokens), the
            number of ordinary codes: 0, ..., codes - 1; the mask is the code behind them.

    Raises:
        WorkbenchError: the shares add up to more than 1, words are replaced with similar ones token by token, the
            tokenizer has no `mask` token, or the similar words are those of another tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer, replacement: ReplacementOptions, codes: int | None = None) -> None:
        self.mask, self.random, self.per = replacement.mask, replacement.random, replacement.per
        if self.mask + self.random > 1 + 1e-9:
            raise WorkbenchError(
                f"replace: mask = {self.mask}, random = {self.random}; allowed: shares of at most 1 together (the rest "
                "of the selected tokens stays as it is)"
            )
        if replacement.similar is not None and self.per != "word":
            raise WorkbenchError(f"replace: similar words with per = {self.per!r}; allowed: per = 'word'")
        if codes is not None and replacement.similar is not None:
            raise WorkbenchError("replace: similar words are those of a tokenizer, and the stream's rows are codes")
        self.similar = SimilarWords(replacement.similar) if replacement.similar is not None else None
        if self.similar is not None and self.similar.tokenizer != tokenizer.identity:
            raise WorkbenchError(
                f"the similar words of {replacement.similar} are those of another tokenizer than the run's; make them "
                "again with `workbench prepare similar-words CORPUS --tokenizer` and the recipe's tokenizer"
            )
        self.mask_id = tokenizer.id("mask") if codes is None else codes
        self.ordinary = tokenizer.ordinary_ids if codes is None else np.arange(codes)

    def __call__(
        self, fields: Fields, groups: list[np.ndarray], rng: np.random.Generator, limit: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Replace tokens, in place, and set their `taken`.

        Args:
            groups: rows that were selected together.
            limit: the most tokens that are replaced, the first ones.

        Returns:
            The rows that were replaced, ascending, and their earlier ids.
        """
        if not groups:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        rows, draw = np.concatenate(groups)[:limit], self._draws(fields, groups, rng)[:limit]
        order = np.argsort(rows)
        rows, draw = rows[order], draw[order]
        labels = fields["input_ids"][rows].copy()
        self._replace(fields, rows, draw, rng)
        return rows, labels

    def _draws(self, fields: Fields, groups: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
        """A number from 0 to 1 for each row, which decides its replacement; one for all rows that share it."""
        rows = np.concatenate(groups)
        if self.per == "token":
            return rng.random(len(rows))
        if self.per == "word":
            number = np.cumsum(begins_word(fields, rows)) - 1
            return rng.random(number[-1] + 1)[number]
        return np.repeat(rng.random(len(groups)), [len(group) for group in groups])

    def _replace(self, fields: Fields, rows: np.ndarray, draw: np.ndarray, rng: np.random.Generator) -> None:
        masked = draw < self.mask
        swapped = ~masked & (draw < self.mask + self.random)
        if self.similar is None:
            fields["input_ids"][rows[masked]] = self.mask_id
        else:
            swapped[masked] = ~_similar_tokens(fields, rows[masked], self.similar, rng)
        fields["input_ids"][rows[swapped]] = self.ordinary[rng.integers(len(self.ordinary), size=int(swapped.sum()))]
        fields["taken"][rows] = True


def begins_word(fields: Fields, rows: np.ndarray) -> np.ndarray:
    """Whether each row is the first of its word among the rows, or does not follow the row before it [rows] bool."""
    words = fields["word_ids"][rows]
    return (np.diff(words, prepend=-2) != 0) | (np.diff(rows, prepend=-2) != 1)


def _similar_tokens(fields: Fields, rows: np.ndarray, similar: SimilarWords, rng: np.random.Generator) -> np.ndarray:
    """Replace the words of these rows with similar ones, in place; returns the rows for which that was possible [rows]
    bool."""
    done = np.zeros(len(rows), np.bool_)
    ids, words = fields["input_ids"], fields["word_ids"]
    bounds = [*np.flatnonzero(begins_word(fields, rows)), len(rows)]
    for begin, end in pairwise(bounds):
        first, last = int(rows[begin]), int(rows[end - 1])
        inner = words[first]
        if (first and words[first - 1] == inner) or (last + 1 < len(words) and words[last + 1] == inner):
            continue
        found = similar.of(ids[first : last + 1])
        if len(found):
            ids[first : last + 1] = similar.word(int(found[rng.integers(len(found))]))
            done[begin:end] = True
    return done
