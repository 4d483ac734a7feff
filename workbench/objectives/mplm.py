"""Masked and permuted language modelling (MPNet, Song et al., NeurIPS 2020, arXiv:2004.09297, sections 2.2 and 2.3).

    L = - sum over t > c of log p(x_{z_t} | x_{z_1} .. x_{z_{t-1}}, M_{z_t} .. M_{z_n}),   z a random order

As in `plm`, tokens are predicted one after the other, each from a row of the query stream. As in `mlm`, the model sees
the whole length of the sequence: for each token that is not predicted yet a mask M is at its position (position
compensation). A mask disappears at its token's place in the order, by the visibility integer `until`:

    text     tokens x, of rank 0 or, if predicted, 1 .. n          masks M of rank 0, until their tokens' ranks
    query    M of the rank before their tokens'

The input for M is as in BERT: the mask, a random token, or the token itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workbench.components.calls import call
from workbench.core.keyed import Draws
from workbench.core.options.bounds import ComponentName, ComponentSpec, Share, Word
from workbench.objectives._queries import ask, check_unordered
from workbench.objectives._token_head import BERT, BertHeadOptions
from workbench.objectives.mlm import Mlm, MlmHead
from workbench.pretraining.objective import BatchTargets, Head
from workbench.sequences.replacement import USUAL, ReplacementOptions
from workbench.sequences.rows import insert
from workbench.sequences.sequence import Sequence
from workbench.sequences.sequence_checks import GROUPS
from workbench.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from workbench.models.network import Network


class Mplm(Mlm):
    """Masked and permuted language modelling (MPNet, Song et al., arXiv:2004.09297, section 2). Tokens of a stream are
    predicted in a random order; masks are at the positions of tokens that are not predicted yet.

    Args:
        rate: share of the free tokens that are predicted.
        masking: the masking strategy, as for `mlm`; the order is over tokens, also of one group.
        replace: the inputs for the masks, as for `mlm`; by default the mask token, a random one, or the token itself.
        stream: the stream of the tokens, at whose end the masks are put.
        query: the stream of the queries, with the tables of the other (`tie`).
        head: of the head, as for `mlm`.

    Raises:
        WorkbenchError: the builder's sequences are read from left to right.
    """

    makes = ("query",)

    def __init__(
        self,
        tokenizer: Tokenizer,
        rate: Share = 0.15,
        masking: ComponentSpec | ComponentName = "whole_word",
        replace: ReplacementOptions = USUAL,
        stream: Word = "text",
        query: Word = "query",
        head: BertHeadOptions = BERT,
    ) -> None:
        super().__init__(tokenizer, rate, masking, replace, stream=stream, head=head)
        self.query = query

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            check_unordered(sequence, sequence.fields(self.stream))
        numbers = draws.numbers([sequence.draw for sequence in sequences])
        groups = call(self.masking, "", GROUPS, sequences, self.stream, self.rate, numbers)
        originals = [sequence.fields(self.stream)["input_ids"] for sequence in sequences]
        replaced = self.replace(sequences, self.stream, groups, numbers)
        for sequence, before, (rows, _) in zip(sequences, originals, replaced, strict=True):
            text = sequence.fields(self.stream)
            masks, text["input_ids"] = text["input_ids"][rows], before
            self._compensate(sequence, rows, masks, 1 + draws.of(sequence.draw).permutation(len(rows)))
            ask(sequence, self.name, self.stream, self.query, rows, masks)
        return {}

    def _compensate(self, sequence: Sequence, rows: np.ndarray, masks: np.ndarray, order: np.ndarray) -> None:
        """Set the ranks of the rows, and append a mask for each to the stream, visible until that rank."""
        text = sequence.fields(self.stream)
        length = len(text["input_ids"])
        text["rank"], text["until"] = np.zeros((2, length), np.int64)
        text["rank"][rows] = order
        insert(sequence, np.full(len(rows), length), self.stream, like=rows, input_ids=masks, rank=0, until=order)

    def head(self, network: Network) -> Head:
        return MlmHead(network, self.query, self.head_options)
