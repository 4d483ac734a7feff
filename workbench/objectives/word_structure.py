"""The word structural objective (StructBERT, arXiv:1908.04577, section 2.2): restore the order of shuffled words.

Some stretches of K consecutive tokens that nothing has masked are shuffled. At each of their places the original token
is predicted, with the head of masked language modelling:

    L = - sum over the stretches  log P(pos_1 = t_1, ..., pos_K = t_K | t_{s(1)}, ..., t_{s(K)}),   s a random order

where the probabilities of the places multiply. The paper shuffles 5 % of the trigrams (K = 3); as its trigrams do not
overlap, these hold 5 % of the tokens. Every order of the K tokens is equally likely, the original one included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge, Le

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, SomeShare, Word
from workbench.objectives._token_head import BERT, TokenHead
from workbench.pretraining.objective import BatchTargets, Head, Objective
from workbench.sequences.selection import selectable
from workbench.sequences.sequence import Fields, Rows, Sequence

if TYPE_CHECKING:
    from workbench.models.network import Network

Length = Annotated[int, Ge(2), Le(100)]


class WordStructure(Objective):
    """Word structural objective (StructBERT, arXiv:1908.04577, section 2.2): the tokens of shuffled spans are predicted
    at their places. After `mlm` it uses the tokens that mlm left.

    Args:
        rate: share of the free tokens that lie in shuffled stretches.
        length: tokens of a stretch.
        stream: the stream of the tokens.

    Raises:
        WorkbenchError: no sequence of the builder has a stretch of this length.
    """

    predicts = "tokens"

    def __init__(
        self, rate: SomeShare = 0.05, length: Length = 3, stream: Word = "text", max_length: Count | None = None
    ) -> None:
        if max_length is not None and length > max_length:
            raise WorkbenchError(
                f"length = {length}: a sequence of at most {max_length} tokens has no stretch of this length, so "
                f"nothing would ever be shuffled; allowed: at most the builder's max_length, {max_length} (the "
                "paper's is 3)"
            )
        self.rate, self.length, self.stream = rate, length, stream

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            rng = draws.of(sequence.draw)
            fields = sequence.fields(self.stream)
            stretches = self._stretches(fields, rng)
            rows = stretches.ravel()
            labels = fields["input_ids"][rows].copy()
            fields["input_ids"][rows] = fields["input_ids"][rng.permuted(stretches, axis=1).ravel()]
            fields["taken"][rows] = True
            sequence.targets[self.name] = {"rows": Rows(self.stream, rows), "labels": labels}
        return {}

    def _stretches(self, fields: Fields, rng: np.random.Generator) -> np.ndarray:
        """Rows [stretches, length], ascending, without overlaps, of about `rate` of the free ones."""
        free = selectable(fields)
        expected = self.rate * free.sum() / self.length
        wanted = int(expected) + int(rng.random() < expected - int(expected))
        found: list[int] = []
        for start in rng.permutation(max(len(free) - self.length + 1, 0)).tolist():
            if len(found) == wanted:
                break
            if free[start : start + self.length].all():
                free[start : start + self.length] = False
                found.append(start)
        return np.sort(np.array(found, np.int64))[:, None] + np.arange(self.length)

    def head(self, network: Network) -> Head:
        return TokenHead(network, self.stream, BERT)
