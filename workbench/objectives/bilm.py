"""Language modelling in two directions that do not see each other (ELMo, Peters et al., arXiv:1802.05365, section 3.1).

    L = - sum over i of [ log p(x_i | x_1..x_{i-1}) + log p(x_i | x_{i+1}..x_n) ]

The first half of row i - 1 predicts x_i from before, the second half of row i + 1 from behind. Both halves have one
head. So the layers must keep the halves apart (`two_way_lstm`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Word
from workbench.objectives._token_head import PLAIN, HeadOptions, TokenHead
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput, Objective
from workbench.sequences.sequence import Rows, Sequence

if TYPE_CHECKING:
    from workbench.models.network import Network


class Bilm(Objective):
    """Language modelling in two directions (ELMo, arXiv:1802.05365): each token of a stream is predicted from those
    before it and from those behind it, special tokens included.

    Tokens that an earlier objective labelled, and injected ones, are read but not predicted.

    Args:
        stream: the stream of the tokens. Its layers keep the halves of its columns apart.
        head: {tied, bias, transform} of the head that both directions have.
    """

    predicts = "tokens"

    def __init__(self, stream: Word = "text", head: HeadOptions = PLAIN) -> None:
        self.stream, self.head_options = stream, head

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            text = sequence.fields(self.stream)
            ids, taken = text["input_ids"], text["taken"]
            doc = text.get("doc", np.zeros(len(ids), np.int64))
            ahead = 1 + np.flatnonzero((doc[1:] == doc[:-1]) & ~taken[1:])
            back = np.flatnonzero((doc[1:] == doc[:-1]) & ~taken[:-1])
            rows = np.concatenate([ahead, back])
            sequence.targets[self.name] = {
                "rows": Rows(self.stream, rows),
                "labels": ids[rows].copy(),
                "from": np.repeat([-1, 1], [len(ahead), len(back)]),
            }
            taken[rows] = True
        return {}

    def head(self, network: Network) -> Head:
        """
        Raises:
            WorkbenchError: the network has no such stream, or one of an odd width.
        """
        width = self.width(network, self.stream)
        if width % 2:
            raise WorkbenchError(f"the width of {self.stream} is {width}; allowed: even ones, a half each direction")
        return BilmHead(network, self.stream, self.head_options, reads_width=width // 2)


class BilmHead(TokenHead):
    """One head of the first half of the row before a token, and of the second half of the row behind it."""

    def forward(self, inputs: HeadInputs) -> LossOutput:
        states, apart = inputs.states[self.reads], inputs.targets["from"]
        ahead, back = states[inputs.targets["rows"] + apart].chunk(2, -1)
        rows = torch.where((apart < 0)[:, None], ahead, back)
        return self.loss.of_rows(*self._factors(inputs.network, rows), inputs.targets["labels"])
