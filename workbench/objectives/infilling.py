"""Infilling generation in two flows (ERNIE-GEN, Xiao et al., IJCAI 2020, arXiv:2001.11314, sections 3.2 to 3.4).

    L = - sum over tokens t of [ log p(y_t | y_<t, source) + log p(y_t | y_<b, source) ],   b the first of the span of t

The source is a prefix, and the tokens y behind it are read from left to right. Each is predicted twice, by a symbol in
its position that sees itself and the tokens before it: all of them in the word-by-word flow, those before its span in
the span-by-span flow. Symbols are rows behind the text:

    rank     2 r for the token of rank r, 2 r - 1 for its symbol; in the other flow that of the span's first symbol
    until    of a symbol its rank + 1: no token sees it
    branch   a number for each symbol: none sees another

Some of the tokens y are replaced by random ones, and predicted nevertheless (noise-aware generation).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workbench.core.keyed import Draws
from workbench.core.options.bounds import Share, Word
from workbench.objectives._text import TextContinuation, check_one_way
from workbench.objectives._token_head import BERT, BertHeadOptions, TokenHead
from workbench.pretraining.objective import BatchTargets, Continuation, Head, Objective
from workbench.sequences.rows import insert
from workbench.sequences.sequence import Rows, Sequence
from workbench.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from workbench.models.network import Network
    from workbench.sequences.builder import Builder


class Infilling(Objective):
    """Infilling generation (ERNIE-GEN, Xiao et al., arXiv:2001.11314, section 3). Each token behind a prefix is
    predicted from a symbol in its position: once from all tokens before it, once from those before its span.

    A span is a stretch of the sample (`mask_spans`: phrases), and a word elsewhere. The symbol is the mask token.

    Args:
        noise: share of the tokens behind the prefix that are replaced by random ones.
        stream: the stream of the tokens.
        head: {tied, bias, transform} of the head, as for `mlm`.

    Raises:
        WorkbenchError: the builder's sequences are seen in both directions, or from right to left.
    """

    predicts = "tokens"

    def __init__(
        self, tokenizer: Tokenizer, noise: Share = 0.05, stream: Word = "text", head: BertHeadOptions = BERT
    ) -> None:
        self.symbol, self.ordinary = tokenizer.id("mask"), tokenizer.ordinary_ids
        self.noise, self.stream, self.head_options = noise, stream, head

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            text = sequence.fields(self.stream)
            check_one_way(sequence, text)
            rank = text["rank"]
            rows = np.flatnonzero((rank[1:] > rank[:-1]) & ~text["taken"][1:]) + 1
            labels = np.tile(text["input_ids"][rows], 2)
            self._replace(sequence, rows, draws.of(sequence.draw))
            text["taken"][rows] = True
            symbols = self._insert(sequence, rows, self._first_of_span(sequence, rows))
            sequence.targets[self.name] = {"rows": Rows(self.stream, symbols), "labels": labels}
        return {}

    def _replace(self, sequence: Sequence, rows: np.ndarray, rng: np.random.Generator) -> None:
        text = sequence.fields(self.stream)
        noised = rows[(rng.random(len(rows)) < self.noise) & ~text["special"][rows]]
        text["input_ids"][noised] = self.ordinary[rng.integers(len(self.ordinary), size=len(noised))]

    def _first_of_span(self, sequence: Sequence, rows: np.ndarray) -> np.ndarray:
        """The first row of the span of each of these rows, among them [rows]."""
        words = sequence.fields(self.stream)["word_ids"]
        first = np.arange(len(words))
        first[1:][(words[1:] == words[:-1]) & (words[1:] >= 0)] = 0
        first = np.maximum.accumulate(first)
        for span in sequence.mask_spans:
            if span.stream == self.stream:
                first[span.start : span.end] = first[span.start]
        return np.maximum(first[rows], rows[:1])

    def _insert(self, sequence: Sequence, rows: np.ndarray, first: np.ndarray) -> np.ndarray:
        """Insert the symbols of both flows behind the text; returns their rows."""
        text = sequence.fields(self.stream)
        length = len(text["rank"])
        rank = 2 * text["rank"]
        text["rank"], text["until"], text["branch"] = rank, *np.zeros((2, length), np.int64)
        sees = np.concatenate([rank[rows], rank[first]]) - 1
        return insert(
            sequence,
            np.full(len(sees), length),
            self.stream,
            like=np.tile(rows, 2),
            input_ids=self.symbol,
            rank=sees,
            until=sees + 1,
            branch=np.arange(1, len(sees) + 1),
        )

    def continuation(self, builder: Builder) -> Continuation:
        return TextContinuation(builder.frame, self.stream, mask=self.symbol, pair=builder.pairs)

    def head(self, network: Network) -> Head:
        return TokenHead(network, self.stream, self.head_options)
