"""Multiple choice: which of several texts goes with a text? (BERT, arXiv:1810.04805, section 4.4)

With p_k the pooled output next to the k-th choice and y the right one,

    z_k = w . dropout(p_k) + b
    L = -log softmax over the choices of z [y], summed over the questions whose answer is known
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Dropout, Word
from workbench.metrics.ranks import rank_scores, realistic_rank
from workbench.models.permutation import padded_groups
from workbench.objectives._token_head import TokenLoss
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput, Objective
from workbench.sequences.sequence import Sample, Sequence
from workbench.sequences.transfer import rows_where

if TYPE_CHECKING:
    from workbench.models.network import Network

UNKNOWN = -100


class MultipleChoice(Objective):
    """Multiple choice (BERT, arXiv:1810.04805, section 4.4): the right one of a sample's choices, for sequences of the
    builder `choices`.

    Args:
        stream: the stream whose pooled output is read.
        dropout: of the pooled output.
    """

    reads = ("answer",)
    measured = ("scores", "choices", "labels")

    def __init__(self, stream: Word = "text", dropout: Dropout = 0.1) -> None:
        self.stream, self.dropout = stream, dropout

    @classmethod
    def constant_loss(cls, options: Mapping[str, Any], samples: Iterable[Sample]) -> float | None:
        """The mean of ln of the number of choices."""
        found = [math.log(len(sample["choices"])) for sample in samples if "answer" in sample]
        return sum(found) / len(found) if found else None

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        """Writes the targets of every sequence; changes nothing.

        The first choice of each question has `choices` [1], their number, and `labels` [1], the number of the right
        one; the others have none.

        Raises:
            WorkbenchError: the sequences are not the choices of questions, all of them and in their order.
        """
        numbers = [sequence.meta.get("choice") for sequence in sequences]
        groups = [sequence.group for sequence in sequences]
        begins = [place for place, group in enumerate(groups) if not place or group != groups[place - 1]]
        counts = np.diff([*begins, len(numbers)]).tolist()
        if numbers != [number for count in counts for number in range(count)]:
            raise WorkbenchError(
                f"objective {self.name!r} reads all choices of a question, one after the other: use the builder "
                "`choices`, and no transform that leaves sequences out"
            )
        for sequence in sequences:
            sequence.targets[self.name] = {"choices": np.zeros(0, np.int64), "labels": np.zeros(0, np.int64)}
        for begin, count in zip(begins, counts, strict=True):
            label = sequences[begin].meta.get("answer", UNKNOWN)
            sequences[begin].targets[self.name] = {"choices": np.array([count]), "labels": np.array([label], np.int64)}
        return {}

    def measure(self, made: Mapping[str, Tensor]) -> dict[str, float]:
        """`accuracy` of the best choice, and `mrr`, the mean of 1 / rank of the right one; equal scores share ranks."""
        parts = made["scores"].split(made["choices"].tolist())
        ranked = [realistic_rank(part.numpy(), gold) for part, gold in zip(parts, made["labels"].tolist(), strict=True)]
        scores = rank_scores(*zip(*ranked, strict=True))
        return {"accuracy": scores.accuracy, "mrr": scores.mrr}

    def head(self, network: Network) -> Head:
        if self.stream not in network.poolers:
            raise WorkbenchError(
                f"objective {self.name!r} reads the pooled {self.stream}; set model.poolers: [{self.stream}]"
            )
        return MultipleChoiceHead(network.pooled_size(self.stream), self.stream, self.dropout)


class MultipleChoiceHead(Head):
    """A score for each choice."""

    def __init__(self, hidden_size: int, stream: str, dropout: float) -> None:
        super().__init__()
        self.score = nn.Linear(hidden_size, 1)
        self.dropout = nn.Dropout(dropout)
        self.stream = stream
        self.loss = TokenLoss()

    def forward(self, inputs: HeadInputs) -> LossOutput:
        """Metric `accuracy`. Outputs: `logits` [choices of all questions], and for the questions whose answer is known
        `scores` [their choices], `choices` and `labels` [questions]."""
        choices, labels = inputs.targets["choices"], inputs.targets["labels"]
        pooled = inputs.network.pool(inputs.states, inputs.batch, self.stream)
        scores = self.score(self.dropout(pooled)).squeeze(1).float()
        counts, known = inputs.known("choices"), inputs.known("labels") != UNKNOWN
        padded, _ = padded_groups(scores, counts, fill=float("-inf"))
        loss, metrics, _ = self.loss(padded, labels)
        questions = rows_where(known, labels.device)
        of_these = rows_where(torch.repeat_interleave(known, counts), labels.device)
        made = {"scores": scores.index_select(0, of_these), "choices": choices.index_select(0, questions)}
        made |= {"labels": labels.index_select(0, questions), "logits": scores}
        return LossOutput(loss, metrics, made)
