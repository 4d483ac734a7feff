"""Replaced token detection (ELECTRA, arXiv:2003.10555, section 2).

A generator learns to predict masked tokens. At each masked position a token is drawn from its distribution, and the
network of this objective predicts for every token whether it is the original one:

    L = - sum over tokens t of [ r_t log p_t + (1 - r_t) log (1 - p_t) ],   p_t = sigmoid(w gelu(W h_t + c) + b)

where r_t = 1 for a token that differs from the original (a draw that hits it is no replacement). No gradient goes
through the draw. The paper adds 50 times this loss to the generator's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workbench.core.options.bounds import Word
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import Head, LossOutput, Objective
from workbench.sequences.batch import Batch

if TYPE_CHECKING:
    from workbench.models.network import Network


class Rtd(Objective):
    """Replaced token detection (ELECTRA, arXiv:2003.10555, section 2): which tokens of a stream were replaced by a
    generator. Every token counts.

    Args:
        of: the masked-language-modelling objective of the same task and view whose head is the generator's.
        stream: the stream of the tokens, which is that objective's too.
    """

    def __init__(self, of: Word = "mlm", stream: Word = "text") -> None:
        self.of, self.stream = of, stream
        self.after = (of,)

    def count(self, batch: Batch) -> float:
        """The number of tokens."""
        return float(batch.streams[self.stream].rows) if self.stream in batch.streams else 0.0

    def head(self, network: Network) -> Head:
        return RtdHead(network.sizes[self.stream], self.of, self.stream)


class RtdHead(Head):
    """Dense, gelu, and a logit for each token."""

    def __init__(self, hidden_size: int, of: str, stream: str = "text") -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.output = nn.Linear(hidden_size, 1)
        self.of, self.stream = of, stream

    def logits(self, rows: Tensor) -> Tensor:
        """States [rows, hidden_size] -> logits [rows] that a token was replaced."""
        return self.output(F.gelu(self.dense(rows))).squeeze(-1)

    def forward(self, inputs: HeadInputs) -> LossOutput:
        """Metrics: `accuracy` over all tokens, `found` of the replaced ones."""
        made = inputs.outputs(self.of)
        original = inputs.batch.streams[self.stream].fields["input_ids"].index_copy(0, made["rows"], made["labels"])
        drawn = torch.multinomial(made["logits"].detach().float().softmax(-1), 1).squeeze(-1)
        tokens = original.index_copy(0, made["rows"], drawn)
        replaced = tokens != original
        read = inputs.run(inputs.batch.replace(self.stream, input_ids=tokens))
        logits = self.logits(read.states[self.stream]).float()
        loss = F.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="sum")
        right = (logits > 0) == replaced
        accuracy, found = (right.sum(), float(len(right))), ((right & replaced).sum(), replaced.sum())
        return LossOutput(loss, {"accuracy": accuracy, "found": found})
