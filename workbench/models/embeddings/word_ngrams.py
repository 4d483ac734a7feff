"""Vectors of words and their character n-grams (fastText, Bojanowski et al., arXiv:1607.04606, section 3.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import torch
import torch.nn.functional as F
from annotated_types import Ge, Le
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Size
from workbench.text.tokenizer import Tokenizer

Buckets = Annotated[int, Ge(1), Le(2**31)]
_START, _PRIME = 2166136261, 16777619


class WordNgramsEmbedding(nn.Module):
    """Vector of a token and of its character n-grams (fastText, arXiv:1607.04606). It is the mean of the token's own
    vector and those of the n-grams of `<token>`, as in the released code; the paper has the sum. N-grams share vectors
    by their hash. Special tokens have no n-grams.

    Args:
        tokenizer: given by the recipe, of whole words.
        vocab_size: rows of the table of tokens (given: the tokenizer's size).
        hidden_size: width of the output rows and of the tables.
        buckets: number of vectors of n-grams.
        shortest: characters of the shortest n-grams.
        longest: characters of the longest ones.

    Raises:
        WorkbenchError: `longest` is below `shortest`.
    """

    by_token = ("token.weight",)
    ngrams: Tensor

    def __init__(
        self,
        hidden_size: Size,
        tokenizer: Tokenizer,
        vocab_size: Count,
        buckets: Buckets = 2_000_000,
        shortest: Size = 3,
        longest: Size = 6,
    ) -> None:
        super().__init__()
        if longest < shortest:
            raise WorkbenchError(f"longest = {longest}; allowed: numbers of at least shortest = {shortest}")
        self.hidden_size = hidden_size
        self.limits = {"input_ids": vocab_size}
        self.token = nn.Embedding(vocab_size, hidden_size)
        self.ngram = nn.Embedding(buckets + 1, hidden_size)  # the last row stands for no n-gram
        self.none = buckets
        found = ngrams_of_tokens(tokenizer, buckets, shortest, longest)
        table = torch.full((vocab_size, max([1, *map(len, found.values())])), buckets)
        for number, hashes in found.items():
            table[number, : len(hashes)] = torch.tensor(hashes, dtype=torch.long)
        self.register_buffer("ngrams", table, persistent=False)

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """input_ids [rows] -> [rows, hidden_size]."""
        ids = fields["input_ids"]
        ngrams = self.ngrams[ids]
        own = self.token(ids)
        inside = F.embedding_bag(ngrams, self.ngram.weight, mode="sum", padding_idx=self.none).to(own.dtype)
        counts = (ngrams != self.none).sum(-1, keepdim=True)
        rows: Tensor = (own + inside) / (counts + 1)
        return rows


def ngrams_of_tokens(tokenizer: Tokenizer, buckets: int, shortest: int, longest: int) -> dict[int, list[int]]:
    """The buckets of the n-grams of each token that is not special."""
    special = {*tokenizer.special_ids.tolist()}
    return {
        number: [found % buckets for found in ngram_hashes(token, shortest, longest)]
        for token, number in tokenizer.vocabulary.items()
        if number not in special
    }


def ngram_hashes(word: str, shortest: int, longest: int) -> Iterator[int]:
    """The hashes of the n-grams of `<word>`: FNV-1a of the UTF-8 bytes as signed characters, as in fastText's code. The
    ends alone are no n-grams."""
    characters = [each.encode() for each in f"<{word}>"]
    for start in range(len(characters)):
        value = _START
        for length, character in enumerate(characters[start : start + longest], 1):
            for byte in character:
                value = (value ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * _PRIME & 0xFFFFFFFF
            if length >= shortest and not (length == 1 and start in (0, len(characters) - 1)):
                yield value
