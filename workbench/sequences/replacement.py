"""The replacement of tokens to be predicted (BERT, arXiv:1810.04805, section 3.1): a mask token, another one, itself.

Or, instead of mask tokens, those of a similar word (MacBERT, arXiv:2004.13922, section 3.2: masked language modelling
as correction). It is the option `replace` of every objective that masks tokens.
"""

from __future__ import annotations

from collections.abc import Sequence as Listing
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Numbers
from workbench.core.options.bounds import Location, Share
from workbench.sequences.selection import RowGroups, begins_words, column, ranges
from workbench.sequences.sequence import Fields, Sequence
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
        self, sequences: Listing[Sequence], stream: str, groups: RowGroups, numbers: Numbers, limit: int | None = None
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Replace tokens of a stream, in place, and set their `taken`.

        Args:
            groups: rows that were selected together (`Masking`).
            limit: the most tokens of a sequence that are replaced, the first ones.

        Returns:
            For each sequence the rows that were replaced, ascending, and their earlier ids.
        """
        fields = [sequence.fields(stream) for sequence in sequences]
        starts = [0, *accumulate(len(own["input_ids"]) for own in fields)]
        tokens = _Tokens(fields)
        rows, of = groups.rows, np.repeat(groups.of, groups.sizes)
        draw = self._draws(tokens, groups, numbers)
        if limit is not None:
            counts = np.bincount(of, minlength=len(fields))
            first = ranges(np.zeros_like(counts), counts) < limit
            rows, of, draw = rows[first], of[first], draw[first]
        order = np.argsort(rows)
        rows, draw = rows[order], draw[order]
        labels = tokens.ids[rows]
        self._replace(tokens, rows, of, draw, numbers)
        taken = column(fields, "taken")
        taken[rows] = True
        cuts = np.searchsorted(rows, starts).tolist()
        replaced = []
        for own, start, end, begin, until in zip(fields, starts, starts[1:], cuts, cuts[1:], strict=False):
            own["input_ids"], own["taken"] = tokens.ids[start:end], taken[start:end]
            replaced.append((rows[begin:until] - start, labels[begin:until]))
        return replaced

    def _draws(self, tokens: _Tokens, groups: RowGroups, numbers: Numbers) -> np.ndarray:
        """A number from 0 to 1 for each row, which decides its replacement; one for all rows that share it."""
        count, of = len(numbers.keys), np.repeat(groups.of, groups.sizes)
        if self.per == "token":
            return numbers.random(np.bincount(of, minlength=count))
        if self.per == "group":
            return np.repeat(numbers.random(np.bincount(groups.of, minlength=count)), groups.sizes)
        new = tokens.begins_word(groups.rows)
        return numbers.random(np.bincount(of[new], minlength=count))[np.cumsum(new) - 1]

    def _replace(self, tokens: _Tokens, rows: np.ndarray, of: np.ndarray, draw: np.ndarray, numbers: Numbers) -> None:
        """Replace the tokens of these rows, ascending; `of` [rows] are their sequences."""
        masked = draw < self.mask
        swapped = ~masked & (draw < self.mask + self.random)
        count = len(numbers.keys)
        if self.similar is None:
            tokens.ids[rows[masked]] = self.mask_id
        else:
            chosen = numbers.random(np.bincount(of[masked], minlength=count))
            swapped[masked] = ~tokens.replace_similar(rows[masked], self.similar, chosen)
        others = numbers.integers(len(self.ordinary), np.bincount(of[swapped], minlength=count))
        tokens.ids[rows[swapped]] = self.ordinary[others]


class _Tokens:
    """The tokens of several sequences, one after the other: `ids` [rows], and the numbers of their words."""

    def __init__(self, fields: Listing[Fields]) -> None:
        self.ids = column(fields, "input_ids")
        self.words = np.cumsum(begins_words(fields))

    def begins_word(self, rows: np.ndarray) -> np.ndarray:
        """Whether each row is the first of its word among the rows, or does not follow the row before it [rows]
        bool."""
        return (np.diff(self.words[rows], prepend=-2) != 0) | (np.diff(rows, prepend=-2) != 1)

    def replace_similar(self, rows: np.ndarray, similar: SimilarWords, drawn: np.ndarray) -> np.ndarray:
        """Replace the words of these rows with similar ones, drawn by the number of a word's first row, in place;
        returns the rows for which that was possible [rows] bool."""
        done = np.zeros(len(rows), np.bool_)
        for begin, end in pairwise([*np.flatnonzero(self.begins_word(rows)), len(rows)]):
            first, last = int(rows[begin]), int(rows[end - 1])
            inner = self.words[first]
            if (first and self.words[first - 1] == inner) or inner in self.words[last + 1 : last + 2]:
                continue
            found = similar.of(self.ids[first : last + 1])
            if len(found):
                self.ids[first : last + 1] = similar.word(int(found[int(drawn[begin] * len(found))]))
                done[begin:end] = True
        return done
