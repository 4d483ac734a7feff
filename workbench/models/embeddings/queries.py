"""Learned vectors as rows of a stream: queries of a pooling layer (CoCa, arXiv:2205.01917; `vision.attention_pool`), a
prompt before a text (Lester et al., arXiv:2104.08691)."""

from __future__ import annotations

from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Size


class QueriesEmbedding(nn.Module):
    """Learned vectors, one for each number of a row (queries of CoCa, arXiv:2205.01917; prompts, arXiv:2104.08691). The
    transform `queries` makes the rows. They have no positions of their own.

    Args:
        hidden_size: width of the vectors.
        count: how many there are.
    """

    def __init__(self, hidden_size: Size, count: Count) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.table = nn.Embedding(count, hidden_size)
        self.limits = {"input_ids": count}

    def forward(self, fields: dict[str, Tensor]) -> Tensor:
        """`input_ids` [rows], the queries' numbers -> [rows, hidden_size].

        Raises:
            WorkbenchError: the stream has no numbers.
        """
        if "input_ids" not in fields:
            raise WorkbenchError(
                f"the embedding of queries needs input_ids, the stream has {', '.join(fields)}: add the transform "
                "queries with this stream"
            )
        queries: Tensor = self.table(fields["input_ids"])
        return queries
