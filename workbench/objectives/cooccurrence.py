"""Regression of how often words occur near each other: GloVe (Pennington et al., EMNLP 2014, equation 8).

    J = sum over cells (i, j) of f(X_ij) (w_i . u_j + b_i + c_j - log X_ij)^2
    f(x) = min(1, x / x_max)^power

w_i is the state of the word i, u_j a row of a table of the head's own. b and c are biases of the words in both roles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Positive, Share, Word
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput, Objective
from workbench.sequences.sequence import Rows, Sample, Sequence
from workbench.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from workbench.models.network import Network


class Cooccurrence(Objective):
    """Weighted regression of the logarithm of how often words occur near each other (GloVe, Pennington et al., EMNLP
    2014). It reads a corpus of `workbench prepare cooccurrence`, whose texts are single words.

    Args:
        tokenizer: given by the recipe.
        x_max: the count from which all cells have the weight 1.
        power: of the weights of smaller counts.
        stream: the stream of the words.

    Raises:
        WorkbenchError: in `corrupt`: a text is not one token.
    """

    reads = ("cooccurrences",)
    prepared_by = "workbench prepare cooccurrence"
    unlabelled = "are the words near other words in the tokenizer's vocabulary?"

    def __init__(
        self, tokenizer: Tokenizer, x_max: Positive = 100.0, power: Share = 0.75, stream: Word = "text"
    ) -> None:
        self.vocabulary, self.words = tokenizer.vocabulary, tokenizer.vocab_size
        self.x_max, self.power, self.stream = x_max, power, stream

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        """The words near each sample's word go to its labels: their ids [words] and their counts [words]."""
        return [self._looked_up(sample) if "cooccurrences" in sample else sample for sample in samples]

    def _looked_up(self, sample: Sample) -> Sample:
        known = [(self.vocabulary[word], count) for word, count in sample["cooccurrences"] if word in self.vocabulary]
        near = np.array([number for number, _ in known], np.int64), np.array([x for _, x in known], np.float32)
        return {**sample, "labels": {**sample.get("labels", {}), self.name: near}}

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            if self.name not in sequence.labels:
                continue
            (near, counts), text = sequence.labels[self.name], sequence.fields(self.stream)
            row = np.flatnonzero(~text["special"])
            if len(row) != 1:
                raise WorkbenchError(
                    f"the text of record {sequence.key!r} has {len(row)} tokens; {self.name} reads texts of one, "
                    f"counted with the recipe's tokenizer: {self.prepared_by} CORPORA --tokenizer TOKENIZER"
                )
            if not text["taken"][row[0]]:
                words = text["input_ids"][row].repeat(len(near))
                rows = Rows(self.stream, row.repeat(len(near)))
                sequence.targets[self.name] = {"rows": rows, "words": words, "labels": near, "counts": counts}
                text["taken"][row] = True
        return {}

    def head(self, network: Network) -> Head:
        """
        Raises:
            WorkbenchError: the network has no such stream.
        """
        return CooccurrenceHead(self.words, self.width(network, self.stream), self.stream, self.x_max, self.power)


class CooccurrenceHead(Head):
    """The vectors of the words near others, the biases, and the loss. `weighted_error` is the mean of the squared
    errors by their weights, whatever the share of rare cells."""

    by_token = ("output.weight", "bias", "output_bias")

    def __init__(self, words: int, hidden_size: int, stream: str, x_max: float, power: float) -> None:
        super().__init__()
        self.stream, self.x_max, self.power = stream, x_max, power
        self.output = nn.Embedding(words, hidden_size)
        self.bias, self.output_bias = (nn.Parameter(torch.zeros(words)) for _ in range(2))

    def forward(self, inputs: HeadInputs) -> LossOutput:
        targets, states = inputs.targets, inputs.states[self.stream]
        near, counts = targets["labels"], targets["counts"].float()
        fitted = (states[targets["rows"]] * self.output(near)).sum(-1).float()
        fitted = fitted + self.bias[targets["words"]] + self.output_bias[near]
        weights = (counts / self.x_max).clamp_max(1) ** self.power
        loss = (weights * (fitted - counts.log()) ** 2).sum()
        return LossOutput(loss, {"weighted_error": (loss.detach(), weights.sum())})
