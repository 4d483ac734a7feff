"""Score biases: terms that are added to the scores of attention.

A score bias reads one grid of queries and keys at a time: some sequences padded to one length, or all rows of a batch
as one. The visibility of keys is not part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.models.layout import Layout
from workbench.models.tensor_cut import CutDim, CutModule, TensorCuts

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class QueryKeyGrid:
    """A grid of queries and keys: q [batch, heads, q, size] and k [batch, heads, k, size], projected and not scaled.

    Attributes:
        q_rows, k_rows: numbers of the grid's rows [batch, q], [batch, k]; behind a shorter sequence any row.
        q_places, k_places: places of the rows in their sequences [batch or 1, q], [batch or 1, k].
        factor: that of the products of queries and keys.
        hidden: pairs [batch, q, k] whose term has no effect, and which may be far apart; None: unknown.
    """

    q: Tensor
    k: Tensor
    queries: Layout
    keys: Layout
    q_rows: Tensor
    k_rows: Tensor
    q_places: Tensor
    k_places: Tensor
    factor: float
    hidden: Tensor | None = None

    def field(self, name: str) -> tuple[Tensor, Tensor]:
        """An integer field of the streams on the grid: [batch, q] and [batch, k], 0 where a stream lacks it.

        Raises:
            WorkbenchError: no stream of the queries, or none of the keys, has it.
        """
        return self.queries.field(name)[self.q_rows], self.keys.field(name)[self.k_rows]

    @property
    def positions(self) -> tuple[Tensor, Tensor]:
        """Positions [batch or 1, q] and [batch or 1, k]: `position_ids`, or the rows of a stream without, counted."""
        q = self.q_places if self.queries.counted else self.queries.positions[self.q_rows]
        return q, self.k_places if self.keys.counted else self.keys.positions[self.k_rows]


class Attention(Protocol):
    """The part of an attention that a score bias may read (`workbench.models.blocks.MultiHeadAttention`)."""

    def entered(self, rows: Tensor) -> Tensor: ...

    def projected(self, query_rows: Tensor, key_rows: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]: ...


class ScoreBias(CutModule, nn.Module):
    """Base of the score biases. The `__init__` of a component gets `num_heads` and `head_size` of the attention.

    `score_mod(queries, keys)`, where a score bias has it, is the same for flex attention: a function of (score, batch,
    head, query, key) that returns the score with the term, where query and key are numbers of rows of all sequences one
    after another (`Layout.contiguous`). `by_fields` means that the term depends on places, positions and fields alone,
    and not on `pair.q` and `pair.k`: layers that share the score bias then compute it only once. `heads_in` names the
    parameters and buffers that have an entry, or equal stretches of entries, for each head, and the dimension of the
    heads; tensor parallelism needs it. `scale` is the factor of the products of queries and keys where the layer states
    none; None: the usual one.
    """

    score_mod: ClassVar[Callable[..., ScoreMod] | None] = None
    by_fields: ClassVar[bool] = False
    heads_in: ClassVar[Mapping[str, int] | None] = None
    scale: float | None = None

    def forward(self, pair: QueryKeyGrid) -> Tensor:
        """The term, added to the scaled scores [batch or 1, heads, q, k]."""
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def check_attention(self, attention: Attention) -> None:
        """Check that a new attention can use it; raises a `WorkbenchError` otherwise."""
        return

    def bound(self, attention: Attention, rows: Tensor) -> ScoreBias:
        """The score bias in one call of an attention, for a term that goes through its matrices or reads the rows that
        query [rows_q, width]; here itself."""
        return self

    def tensor_cuts(self) -> TensorCuts:
        if self.heads_in is None:
            raise WorkbenchError(
                f"the score bias {type(self).__name__} has no `heads_in`, so its heads cannot be divided over ranks; "
                "state there the dimension of the heads of each of its tensors ({} without any), or set "
                "train.parallel.tensor: 1"
            )
        tensors = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        return TensorCuts(tensors={name: CutDim(dim) for name, dim in self.heads_in.items() if name in tensors})
