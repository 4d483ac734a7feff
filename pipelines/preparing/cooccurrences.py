"""Counts of the words that occur near each other in corpora, as records (GloVe, Pennington et al., EMNLP 2014).

    X_ij = sum over the places where j is d <= window words from i of 1 / d

on both sides (section 4.2). Special and unknown tokens are left out before distances are counted, as in the released
code. A record has at most `cells` words near one word, in a random order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from pipelines.preparing.corpus_reader import CorpusTexts, open_corpus
from pipelines.readers.reader import RawReader, Record
from workbench.corpora.manifest import FILE_NAME
from workbench.sequences.sequence import Sample
from workbench.text.tokenizer import Tokenizer

BATCH = 256
PENDING = 1 << 22
"""The number of pairs that wait to be added up."""
CELL_BYTES = 16
"""Of a word and its count in a record, about."""


class PairCounts:
    """Sums of numbers by pairs of ids, in memory.

    Args:
        words: the ids are below this number.
    """

    def __init__(self, words: int) -> None:
        self.words = words
        self.keys: np.ndarray = np.zeros(0, np.int64)
        self.sums: np.ndarray = np.zeros(0)
        self.waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self.size = 0

    def add(self, ids: np.ndarray, window: int) -> None:
        """Count the pairs of a text's words [words], in both directions."""
        for apart in range(1, min(window, len(ids) - 1) + 1):
            first, second = ids[:-apart], ids[apart:]
            keys = np.concatenate([first * self.words + second, second * self.words + first])
            self.waiting.append((keys, np.full(len(keys), 1 / apart)))
            self.size += len(keys)
        if self.size >= PENDING:
            self._merge()

    def _merge(self) -> None:
        keys, sums = zip((self.keys, self.sums), *self.waiting, strict=True)
        self.keys, places = np.unique(np.concatenate(keys), return_inverse=True)
        self.sums = np.bincount(places, np.concatenate(sums), len(self.keys))
        self.waiting, self.size = [], 0

    def rows(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Each first id, ascending, with its second ids and their sums."""
        self._merge()
        firsts, seconds = np.divmod(self.keys, self.words)
        ends = np.flatnonzero(np.diff(firsts)) + 1
        for ids, near, sums in zip(*(np.split(each, ends) for each in (firsts, seconds, self.sums)), strict=True):
            if len(ids):
                yield int(ids[0]), near, sums


@dataclass(frozen=True)
class CooccurrenceReader(RawReader):
    """The words near each word of corpora. A token that is no word by itself (a part of one) is left out."""

    kind: ClassVar[str] = "text"
    tokenizer: str
    identity: str
    window: int
    cells: int
    limit: int | None = None

    @cached_property
    def _tokens(self) -> Tokenizer:
        return Tokenizer.load(self.tokenizer)

    @cached_property
    def words(self) -> dict[int, str]:
        """The tokens that are words, by their ids."""
        vocabulary = {number: token for token, number in self._tokens.vocabulary.items()}
        unknown = {self._tokens.id("unk")} if self._tokens.has("unk") else set()
        named = [(n, vocabulary[n]) for n in self._tokens.ordinary_ids.tolist() if n not in unknown]
        read = self._tokens.encode_batch([token for _, token in named])
        return {n: token for (n, token), found in zip(named, read, strict=True) if found.ids.tolist() == [n]}

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        return [path / FILE_NAME for path in paths]

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        known = np.zeros(self._tokens.vocab_size, bool)
        known[list(self.words)] = True
        counts, gathered = PairCounts(len(known)), list[str]()
        for text in CorpusTexts([open_corpus(str(path)) for path in paths], self.limit):
            gathered.append(text)
            if len(gathered) == BATCH:
                self._count(gathered, known, counts)
                gathered = []
        self._count(gathered, known, counts)
        for first, near, sums in counts.rows():
            order = np.random.default_rng(first).permutation(len(near))
            for part, begin in enumerate(range(0, len(order), self.cells)):
                chosen = order[begin : begin + self.cells]
                cells = [near[chosen].tolist(), sums[chosen].tolist()]
                yield Record((first, part, cells), CELL_BYTES * len(chosen), f"{self.words[first]}:{part}")

    def _count(self, texts: list[str], known: np.ndarray, counts: PairCounts) -> None:
        for encoded in self._tokens.encode_batch(texts):
            ids = np.asarray(encoded.ids, np.int64)
            counts.add(ids[known[ids]], self.window)

    def sample(self, record: Record) -> Sample:
        first, part, (near, sums) = record.data
        key = f"{first:07}-{part:06}"
        return {
            "key": key,
            "text": self.words[first],
            "cooccurrences": [[self.words[n], round(x, 6)] for n, x in zip(near, sums, strict=True)],
            "meta": {"document": key},  # a split holds out some of a word's records, not words
        }
