"""Pseudo-masked language modelling (UniLM v2, Bao et al., ICML 2020, arXiv:2002.12804, section 3).

    L = - sum over masked tokens m of log p(x_m | x without all masked)
        - sum over blocks i in a random order, tokens m of block i, of log p(x_m | x without blocks i, i + 1, ...)

Autoencoding and partially autoregressive modelling in one pass. In the text masks M are in the places of the tokens.
Behind it are a pseudo mask P and the token itself for each of them, at the token's position:

    text                     rank 0               seen by all rows
    tokens of block i        rank 2 i             seen by those of this block and of later ones
    pseudo masks of block i  rank 2 i - 1         seen by those of this block alone (until = 2 i)

The input for M is as in BERT: the mask, a random token, or the token itself. M predict in the first sum, P in the
second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workbench.components.calls import call
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import ComponentName, ComponentSpec, SomeShare, Word
from workbench.objectives._queries import check_unordered
from workbench.objectives._token_head import BERT, BertHeadOptions, token_table
from workbench.objectives.mlm import Mlm, MlmHead
from workbench.pretraining.objective import BatchTargets, Head
from workbench.sequences.replacement import USUAL, ReplacementOptions
from workbench.sequences.rows import insert
from workbench.sequences.sequence import Rows, Sequence
from workbench.sequences.sequence_checks import GROUPS
from workbench.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from workbench.models.network import Network


class Pmlm(Mlm):
    """Pseudo-masked language modelling (UniLM v2, Bao et al., arXiv:2002.12804, section 3). Masked tokens are predicted
    at once, and block after block in a random order, in one pass. A block is a group of the masking strategy.

    Args:
        rate: share of the free tokens that are predicted.
        masking: the masking strategy, as for `mlm`.
        replace: the inputs for the masks, as for `mlm`.
        stream: the stream of the tokens, at whose end pseudo masks and tokens are put. The id of the pseudo mask is
            the one after the tokenizer's, so its table has a row more (`vocab_size`).
        head: of the head, as for `mlm`.

    Raises:
        WorkbenchError: the builder's sequences are read from left to right, or the table has no row for a pseudo
            mask.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        rate: SomeShare = 0.15,
        masking: ComponentName | ComponentSpec = "token",
        replace: ReplacementOptions = USUAL,
        stream: Word = "text",
        head: BertHeadOptions = BERT,
    ) -> None:
        super().__init__(tokenizer, rate, masking, replace, stream=stream, head=head)
        self.pseudo = tokenizer.vocab_size

    @property
    def own_tokens(self) -> dict[int, str]:
        return {self.pseudo: "[P]"}

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            check_unordered(sequence, sequence.fields(self.stream))
        numbers = draws.numbers([sequence.draw for sequence in sequences])
        groups = call(self.masking, "", GROUPS, sequences, self.stream, self.rate, numbers)
        lengths = np.array([sequence.length(self.stream) for sequence in sequences], np.int64)
        blocks = groups.by_sequence(np.cumsum(lengths) - lengths)
        replaced = self.replace(sequences, self.stream, groups, numbers)
        for sequence, own, (rows, labels) in zip(sequences, blocks, replaced, strict=True):
            order = 1 + draws.of(sequence.draw).permutation(len(own))
            block = np.zeros(sequence.length(self.stream), np.int64)
            for number, group in zip(order, own, strict=True):
                block[group] = number
            pseudo = self._append(sequence, rows, labels, block[rows])
            both = Rows(self.stream, np.concatenate([rows, pseudo]))
            sequence.targets[self.name] = {"rows": both, "labels": np.tile(labels, 2)}
        return {}

    def _append(self, sequence: Sequence, rows: np.ndarray, tokens: np.ndarray, block: np.ndarray) -> np.ndarray:
        """Append pseudo masks, then the tokens; returns the rows of the former."""
        text = sequence.fields(self.stream)
        length, none = len(text["input_ids"]), np.zeros(len(rows), np.int64)
        text["rank"], text["until"] = np.zeros((2, length), np.int64)
        added = insert(
            sequence,
            np.full(2 * len(rows), length),
            self.stream,
            like=np.tile(rows, 2),
            input_ids=np.concatenate([np.full(len(rows), self.pseudo), tokens]),
            rank=np.concatenate([2 * block - 1, 2 * block]),
            until=np.concatenate([2 * block, none]),
        )
        return added[: len(rows)]

    def head(self, network: Network) -> Head:
        rows = len(token_table(network, self.stream))
        if rows <= self.pseudo:
            raise WorkbenchError(
                f"the pseudo mask has the id {self.pseudo}, behind the tokenizer's tokens, and the table of the stream "
                f"{self.stream!r} has {rows} rows; set {self.stream}.vocab_size={self.pseudo + 1} (or more) under "
                "model.streams"
            )
        return MlmHead(network, self.stream, self.head_options)
