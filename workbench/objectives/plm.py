"""Permutation language modelling (XLNet, Yang et al., NeurIPS 2019, arXiv:1906.08237, sections 2.2 to 2.4).

    L = - sum over t > c of log p(x_{z_t} | x_{z_1} .. x_{z_{t-1}}),   z a random order of the positions

Only the last tokens of the order are predicted, a share of 1 / K of them (`rate`); those before the cut c see each
other. The order is the visibility integer `rank`; positions stay those of the text. Each token is predicted from a row
of the query stream, which knows its position and not the token (the layer `two_stream`).
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from workbench.components.building import build
from workbench.components.calls import call
from workbench.core.keyed import Draws
from workbench.core.options.bounds import ComponentName, ComponentSpec, Count, SomeShare, Word
from workbench.objectives._queries import ask, check_unordered
from workbench.objectives._token_head import HeadOptions, TokenHead
from workbench.pretraining.objective import BatchTargets, Head, Objective
from workbench.sequences.sequence import Sequence
from workbench.sequences.sequence_checks import GROUPS

if TYPE_CHECKING:
    from workbench.models.network import Network

BIASED = HeadOptions(bias=True)


class Plm(Objective):
    """Permutation language modelling (XLNet, Yang et al., arXiv:1906.08237, section 2). Tokens of a stream are
    predicted in a random order, each from a row of the query stream.

    Args:
        rate: share of the free tokens that are predicted (1 / K).
        masking: the masking strategy, as for `mlm`; the order is over tokens, also of one group.
        perm_size: tokens that are ordered among each other; these blocks follow one another as in the text, and none
            sees a later one. By default the whole sequence is one.
        stream: the stream of the tokens.
        query: the stream of the queries.
        head: {tied, bias, transform} of the head, where a pretrained model has another than XLNet's.

    Raises:
        WorkbenchError: the builder's sequences are read from left to right.
    """

    predicts = "tokens"
    makes = ("query",)

    def __init__(
        self,
        rate: SomeShare = 1 / 6,
        masking: ComponentSpec | ComponentName = "token",
        perm_size: Count | None = None,
        stream: Word = "text",
        query: Word = "query",
        head: HeadOptions = BIASED,
    ) -> None:
        self.rate, self.perm_size, self.head_options = rate, perm_size, head
        self.stream, self.query = stream, query
        self.masking = build("masking", masking, "masking")

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            check_unordered(sequence, sequence.fields(self.stream))
        numbers = draws.numbers([sequence.draw for sequence in sequences])
        groups = call(self.masking, "", GROUPS, sequences, self.stream, self.rate, numbers)
        starts = [0, *accumulate(sequence.length(self.stream) for sequence in sequences)]
        chosen = np.split(np.sort(groups.rows), np.searchsorted(np.sort(groups.rows), starts[1:-1]))
        for sequence, start, rows in zip(sequences, starts, chosen, strict=False):
            text, rows = sequence.fields(self.stream), rows - start
            text["rank"] = order(len(text["input_ids"]), rows, self.perm_size, draws.of(sequence.draw))
            ask(sequence, self.name, self.stream, self.query, rows, np.zeros(len(rows)))
        return {}

    def head(self, network: Network) -> Head:
        return TokenHead(network, self.stream, self.head_options, reads=self.query)


def order(length: int, rows: np.ndarray, perm_size: int | None, rng: np.random.Generator) -> np.ndarray:
    """The `rank` of a sequence's tokens [length]: in each block first the tokens that are not predicted, as one, then
    the `rows` that are, in a random order."""
    size = perm_size or max(length, 1)
    block = np.arange(length) // size
    rank = block * (size + 1)
    for number in np.unique(block[rows]):
        here = rows[block[rows] == number]
        rank[here] += 1 + rng.permutation(len(here))
    return rank
