"""Causal language modelling (GPT): L = - sum over i of log p(x_{i+1} | x_1..x_i), within each document.

The builder defines the visibility: a token is predicted that the one before it does not see; in a prefix language
model, the tokens after the prefix. The head is the tied token embedding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workbench.core.keyed import Draws
from workbench.core.options.bounds import Dropout, Word
from workbench.objectives._text import TextContinuation, TripleContinuation, check_one_way
from workbench.objectives._token_head import PLAIN, HeadOptions, TokenHead
from workbench.pretraining.objective import BatchTargets, Continuation, Head, Objective
from workbench.sequences.sequence import Rows, Sequence
from workbench.sequences.triple_text import TripleText

if TYPE_CHECKING:
    from workbench.models.network import Network
    from workbench.sequences.builder import Builder


class Clm(Objective):
    """Causal language modelling (GPT): every next token of a stream is predicted, special tokens included.

    Tokens that an earlier objective labelled, and injected ones, are read but not predicted.

    Args:
        stream: the stream of the tokens.
        head: {tied, bias, transform} of the head, where a pretrained model has more than the table.
        smoothing: in training, the share of each label's weight that all tokens have evenly (label smoothing, Szegedy
            et al., arXiv:1512.00567, section 7).

    Raises:
        WorkbenchError: the builder's sequences are seen in both directions, or from right to left.
    """

    name = "clm"
    predicts = "tokens"

    def __init__(self, stream: Word = "text", head: HeadOptions = PLAIN, smoothing: Dropout = 0.0) -> None:
        self.stream, self.head_options, self.smoothing = stream, head, smoothing

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            text = sequence.fields(self.stream)
            ids = text["input_ids"]
            check_one_way(sequence, text)
            doc, rank = text.get("doc", np.zeros(len(ids), np.int64)), text["rank"]
            rows = np.flatnonzero((doc[1:] == doc[:-1]) & (rank[1:] > rank[:-1]) & ~text["taken"][1:])
            sequence.targets[self.name] = {"rows": Rows(self.stream, rows), "labels": ids[rows + 1].copy()}
            text["taken"][rows + 1] = True
        return {}

    def continuation(self, builder: Builder) -> Continuation:
        if isinstance(builder, TripleText):
            return TripleContinuation(builder, self.stream)
        return TextContinuation(builder.frame, self.stream, pair=builder.pairs)

    def head(self, network: Network) -> Head:
        head = TokenHead(network, self.stream, self.head_options)
        head.loss.smoothing = self.smoothing
        return head
