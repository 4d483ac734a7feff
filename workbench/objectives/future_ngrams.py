"""Prediction of future n-grams (ProphetNet, Qi et al., EMNLP Findings 2020, arXiv:2001.04063, sections 2 and 3.1).

    L = - sum over streams s = 0 .. n - 1 and tokens t of log p(y_t | y_1 .. y_{t-1-s}, text)

The decoder's stream `target` holds the start token and the tokens y, and predicts nothing. Stream s has a row for each
token t. Its row knows s and the position of y_t; it sees the rows of `target` up to y_{t-1-s} (at least the start
token) and itself. The rows of all n streams are those of the stream `query`:

    target   [S] the river flows         ranks  0   2   4   6
    query    s = 0: rows that predict    the river flows past      ranks 1 3 5 7
             s = 1                       the river flows past      ranks 1 1 3 5

By these ranks rows of the query see those of the target. By `until` no row of the target sees them, and by `branch`
none of them sees another. In pretraining the text is masked, one stretch of it in each block of tokens, and the decoder
predicts these stretches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from annotated_types import Ge, Le
from torch import Tensor

from workbench.core.keyed import Draws, Numbers
from workbench.core.options.bounds import Count, SomeShare, Word
from workbench.objectives._decoder import DecoderContinuation, DecoderObjective, DecoderTarget
from workbench.objectives._token_head import PLAIN, HeadOptions, TokenHead
from workbench.objectives.masked_span import stretch
from workbench.pretraining.objective import BatchTargets, Continuation, Head
from workbench.sequences.replacement import USUAL, ReplacementOptions, TokenReplacement
from workbench.sequences.rows import rows_of
from workbench.sequences.selection import RowGroups, selectable
from workbench.sequences.sequence import Fields, Rows, Sequence
from workbench.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from workbench.models.network import Network
    from workbench.sequences.builder import Builder

Streams = Annotated[int, Ge(1), Le(64)]


class FutureNgrams(DecoderObjective):
    """Prediction of future n-grams (ProphetNet, Qi et al., arXiv:2001.04063). A decoder predicts each token of the
    masked stretches of a text several times, knowing fewer and fewer of the tokens before it.

    Args:
        ngram: n, the number of predictions of each token.
        rate: share of the text's tokens that are masked.
        block: the text has a masked stretch in each block of so many tokens.
        replace: {mask, random, per, similar}: the encoder's input in place of these, as for `mlm`.
        stream: the encoder's stream.
        target: the decoder's stream.
        query: the stream of the predictions, whose embedding has `ngram` rows (`vocab_size`).
        head: {tied, bias, transform} of the head.
    """

    makes = ("target", "query")

    def __init__(
        self,
        tokenizer: Tokenizer,
        ngram: Streams = 2,
        rate: SomeShare = 0.15,
        block: Count = 64,
        replace: ReplacementOptions = USUAL,
        stream: Word = "text",
        target: Word = "target",
        query: Word = "query",
        head: HeadOptions = PLAIN,
    ) -> None:
        super().__init__(tokenizer, stream, target, start="eos", head=head)
        self.ngram, self.rate, self.block, self.query = ngram, rate, block, query
        self.replace = TokenReplacement(tokenizer, replace)

    def noise(self, sequence: Sequence, rng: np.random.Generator) -> DecoderTarget:
        """Mask a stretch in each block; the target of a text without free tokens is empty."""
        text = sequence.fields(self.stream)
        free = selectable(text)
        begins = range(0, len(free), self.block)
        found = [begin + stretch(free[begin : begin + self.block], self.rate, rng) for begin in begins]
        rows = np.concatenate([np.zeros(0, np.int64), *found])
        ids, sizes = text["input_ids"][rows], [len(each) for each in found if len(each)]
        self.replace([sequence], self.stream, RowGroups(rows, sizes, np.zeros(len(sizes))), Numbers.of(rng))
        return DecoderTarget(ids)

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        super().corrupt(sequences, draws)
        for sequence in sequences:
            target, labels = sequence.streams[self.target], sequence.targets[self.name]["labels"]
            sequence.streams[self.query] = self._predictions(target, len(labels))
            target["rank"] = 2 * target["rank"]
            rows = Rows(self.query, np.arange(self.ngram * len(labels)))
            sequence.targets[self.name] = {"rows": rows, "labels": np.tile(np.asarray(labels), self.ngram)}
        return {}

    def _predictions(self, target: Fields, tokens: int) -> Fields:
        """The rows of all streams, stream after stream."""
        number, row = np.divmod(np.arange(self.ngram * tokens), max(tokens, 1))
        fields = rows_of(target, row)
        fields["rank"] = 2 * np.maximum(fields["rank"] - number, 0) + 1
        fields["until"], fields["branch"] = fields["rank"] + 1, 1 + np.arange(len(row))
        fields["input_ids"], fields["position_ids"] = self.ids(number), fields["position_ids"] + 1
        return fields

    def ids(self, number: np.ndarray) -> np.ndarray:
        """The rows of the embedding's table for these streams. The last row is that of stream 0, as in the released
        weights."""
        return (number - 1) % self.ngram

    def continuation(self, builder: Builder) -> Continuation:
        return FutureContinuation(self.target, self.start, self.end, self.query, int(self.ids(np.array(0))))

    def head(self, network: Network) -> Head:
        return TokenHead(network, self.target, self.head_options, reads=self.query)


class FutureContinuation(DecoderContinuation):
    """A row of stream 0 predicts the next token.

    Args:
        asked: the stream of this row.
        number: its `input_ids`.
    """

    def __init__(self, stream: str, start: int, end: int, asked: str, number: int) -> None:
        super().__init__(stream, start, end)
        self.asked, self.number = asked, number

    def asking_rows(self, last: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.next_rows(last, torch.full_like(last["input_ids"], self.number))
