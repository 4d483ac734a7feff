"""The poolers of `model.poolers`: how the states of a sequence's rows become one vector."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor, nn

from workbench.core.options.bounds import Size
from workbench.models.pooler import (
    Pooler,
    PoolerOptions,
    first_rows,
    last_rows,
    max_rows,
    mean_rows,
    summary_rows,
)
from workbench.sequences.batch import Stream


class SummaryPooler(Pooler):
    """The row that represents a sequence: the first ([CLS]), or the last of a text that is read from left to right.
    With the default layers it is BERT's pooled output (Devlin et al., arXiv:1810.04805)."""

    def vectors(self, rows: Tensor, stream: Stream) -> Tensor:
        return summary_rows(rows, stream)


class FirstPooler(Pooler):
    """The first row of each sequence."""

    def vectors(self, rows: Tensor, stream: Stream) -> Tensor:
        return first_rows(rows, stream)


class LastPooler(Pooler):
    """The last row of each sequence."""

    def vectors(self, rows: Tensor, stream: Stream) -> Tensor:
        return last_rows(rows, stream)


class MeanPooler(Pooler):
    """The mean of the rows of each sequence."""

    def vectors(self, rows: Tensor, stream: Stream) -> Tensor:
        return mean_rows(rows, stream)


class MaxPooler(Pooler):
    """The maximum of each feature over the rows of each sequence."""

    def vectors(self, rows: Tensor, stream: Stream) -> Tensor:
        return max_rows(rows, stream)


class ConcatPooler(Pooler):
    """[last row ; maximum ; mean] of each sequence (ULMFiT, Howard and Ruder, arXiv:1801.06146, section 3.3)."""

    width = 3

    def vectors(self, rows: Tensor, stream: Stream) -> Tensor:
        return torch.cat([last_rows(rows, stream), max_rows(rows, stream), mean_rows(rows, stream)], -1)


class FinalStatePooler(Pooler):
    """The state in which each direction of a bidirectional `lstm` ends: the first half of the last row, and the second
    half of the first row (Distilled BiLSTM, Tang et al., arXiv:1903.12136, section 3.1)."""

    def vectors(self, rows: Tensor, stream: Stream) -> Tensor:
        half = rows.shape[1] // 2
        return torch.cat([last_rows(rows, stream)[:, :half], first_rows(rows, stream)[:, half:]], -1)


class AttentionPooler(Pooler):
    """The rows of each sequence weighted by attention (Yang et al., "Hierarchical Attention Networks for Document
    Classification", NAACL 2016, equations 5 to 7). It is sum_i a_i h_i with a = softmax(u . tanh(V h + c)).

    Args:
        inner_size: width of V h; by default the stream's.
        options: those of every pooler, `workbench.models.pooler.PoolerOptions`.
    """

    def __init__(
        self, hidden_size: Size, inner_size: Size | None = None, **options: Annotated[Any, PoolerOptions]
    ) -> None:
        super().__init__(hidden_size, **options)
        self.inner = nn.Linear(hidden_size, inner_size or hidden_size)
        self.score = nn.Linear(inner_size or hidden_size, 1, bias=False)

    def vectors(self, rows: Tensor, stream: Stream) -> Tensor:
        scores = self.score(torch.tanh(self.inner(rows)))
        pairs = zip(rows.split(stream.lengths), scores.split(stream.lengths), strict=True)
        return torch.stack([(each * score.softmax(0)).sum(0) for each, score in pairs])
