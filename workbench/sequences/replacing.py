"""What becomes of tokens to be predicted (BERT, arXiv:1810.04805, section 3.1): a mask token, another one, itself.

Or the tokens of a similar word, where a file of such words is named (MacBERT, arXiv:2004.13922, section 3.2).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from workbench.errors import WorkbenchError
from workbench.sequences.sequence import Fields
from workbench.text.similar_words import SimilarWords
from workbench.text.tokenizer import Tokenizer


class Replacing:
    """Puts mask tokens and random ordinary tokens in the place of tokens.

    Args:
        mask, random: shares of the tokens that become a mask token and a random one; the rest stays.
        similar: file of similar words (`workbench.text.similar_words`): instead of mask tokens, a word becomes one of
            those. One that has none, or whose tokens are not all to be replaced, becomes random tokens.

    Raises:
        WorkbenchError: the shares are more than all, the tokenizer has no `mask` token, or the similar words are those
            of another tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer, mask: float, random: float, similar: str | None = None) -> None:
        if mask + random > 1 + 1e-9:
            raise WorkbenchError(
                f"mask = {mask}, random = {random}; allowed: shares of at most 1 together (the rest of the "
                "selected tokens stays as it is)"
            )
        self.mask, self.random = mask, random
        self.similar = SimilarWords(similar) if similar is not None else None
        if self.similar is not None and self.similar.tokenizer != tokenizer.identity:
            raise WorkbenchError(
                f"the similar words of {similar} are those of another tokenizer than the run's; make them again with "
                "`workbench prepare similar-words CORPUS --tokenizer` and the recipe's tokenizer"
            )
        self.mask_id = tokenizer.id("mask")
        self.ordinary = tokenizer.ordinary_ids

    def __call__(self, fields: Fields, rows: np.ndarray, draw: np.ndarray, rng: np.random.Generator) -> None:
        """Replace the tokens of these rows, in place, and set their `taken`.

        Args:
            rows: ascending.
            draw: a number from 0 to 1 for each row, which decides what becomes of it.
        """
        masked = draw < self.mask
        swapped = ~masked & (draw < self.mask + self.random)
        if self.similar is None:
            fields["input_ids"][rows[masked]] = self.mask_id
        else:
            swapped[masked] = ~_made_similar(fields, rows[masked], self.similar, rng)
        fields["input_ids"][rows[swapped]] = self.ordinary[rng.integers(len(self.ordinary), size=int(swapped.sum()))]
        fields["taken"][rows] = True


def begins_word(fields: Fields, rows: np.ndarray) -> np.ndarray:
    """Whether each row is the first of its word among the rows, or does not follow the row before it [rows] bool."""
    words = fields["word_ids"][rows]
    return (np.diff(words, prepend=-2) != 0) | (np.diff(rows, prepend=-2) != 1)


def _made_similar(fields: Fields, rows: np.ndarray, similar: SimilarWords, rng: np.random.Generator) -> np.ndarray:
    """Turn the words of these rows into similar ones, in place; for which rows that was possible [rows] bool."""
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
