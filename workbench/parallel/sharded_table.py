"""A trained table whose rows are divided over the ranks of a run. No process holds it whole.

Row i has the place (i m) mod N, with N the number of rows, and m prime to N and near N / 1.618 (the golden ratio). Rank
r of R has the places [r c, (r + 1) c), c = ceil(N / R). So its rows are one range, which is stored as such, and read
again on another number of ranks. Rows that follow each other are on different ranks: where a table begins with its most
frequent entities, no rank has more of them than others.

A step looks rows up once, for all its micro-batches (`workbench.parallel.table_rows`). Within it the looked-up rows
are a leaf of the graph, whose gradient has the size of these rows: a gradient of the size of the table never exists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.sequences.fetched_rows import FetchedRows

BLOCK = 2**13
"""Rows that are filled or read at once."""
LARGEST = 2**31
"""Rows of the largest table: products of two rows' numbers are whole numbers of 64 bits."""
_PART: ContextVar[tuple[int, int]] = ContextVar("table_part", default=(0, 1))
_TRIAL: ContextVar[bool] = ContextVar("table_trial", default=False)


@contextmanager
def table_part(rank: int, ranks: int) -> Iterator[None]:
    """A block in which tables are built with the rows of this rank alone."""
    token = _PART.set((rank, ranks))
    try:
        yield
    finally:
        _PART.reset(token)


@contextmanager
def without_rows() -> Iterator[None]:
    """A block in which tables are built without rows, which are to be read from files (`ShardedTable.map_files`)."""
    with table_part(1, 1):  # the rank behind the last one
        yield


@contextmanager
def trial_rows() -> Iterator[None]:
    """A block for passes that count operations or memory: rows of other ranks are zeros, and no rank is asked."""
    token = _TRIAL.set(True)
    try:
        yield
    finally:
        _TRIAL.reset(token)


def count_parameters(model: nn.Module, *, trained: bool = False) -> int:
    """The parameters of the whole model, on any number of ranks; with `trained` the trained ones alone. Of a sharded
    table this rank has some rows, or none where they are read from files; all of them count."""
    tables = {id(table.weight): table for table in model.modules() if isinstance(table, ShardedTable)}
    counted = (p for p in model.parameters() if p.requires_grad or not trained)
    return sum(tables[id(p)].rows * tables[id(p)].width if id(p) in tables else p.numel() for p in counted)


class ShardedTable(nn.Module):
    """The rows of a table [rows, width] that this rank owns, with their moments.

    `weight` is no part of `state_dict`, of DDP's and of FSDP's parameters: `rows_sharded_parameters` names it. Its rows
    are updated by `lazy Adam` (`workbench.parallel.table_rows`). Gradients reach it in steps of the trainer alone.

    Args:
        rows: of the whole table.
        on_host: keep rows and moments in the host's memory, also where the model is on a GPU.

    Attributes:
        first, last: the places of this rank, [first, last).
        moments: the first and second moment of each row [last - first, width]; empty until the first update.
        updates: the number of updates so far.
        step_rows: the rows of the present step, while there is one.
        mapped: the ranges of a checkpoint's files, where rows are read from there: first place and rows of each.
    """

    reached_by_some = ("weight",)  # its gradient is not in `grad`

    def __init__(self, rows: int, width: int, on_host: bool = False) -> None:
        super().__init__()
        if rows >= LARGEST:
            raise WorkbenchError(f"a sharded table of {rows:,} rows; allowed: fewer than {LARGEST:,}")
        self.rows, self.width, self.on_host = rows, width, on_host
        self.rank, self.ranks = _PART.get()
        self.share = -(-rows // self.ranks)
        self.first = min(rows, self.rank * self.share)
        self.last = min(rows, self.first + self.share)
        self.multiplier = next(m for m in range(max(1, round(rows / 1.618034)), rows + 2) if math.gcd(m, rows) == 1)
        # where ranks get other parameters from the main rank (`workbench.parallel.lean_building`), each has its rows
        device = "cpu" if self.ranks > 1 else None
        self.weight = nn.Parameter(torch.empty(self.last - self.first, width, device=device))
        self.weight.rows_sharded = True  # type: ignore[attr-defined]
        self.moments: tuple[Tensor, ...] = ()
        self.updates = 0
        self.step_rows: FetchedRows | None = None
        self.mapped: list[tuple[int, Tensor]] = []

    def places(self, rows: Tensor) -> Tensor:
        """Numbers of rows -> their places in the order in which the table is stored."""
        return rows * self.multiplier % self.rows

    def rows_at(self, places: Tensor) -> Tensor:
        """The inverse of `places`."""
        return places * pow(self.multiplier, -1, self.rows) % self.rows

    @torch.no_grad()
    def fill(self, values: Callable[[Tensor], Tensor]) -> None:
        """Set this rank's rows, a block at a time.

        Args:
            values: numbers of rows [block] -> their values [block, width].
        """
        if self.weight.is_meta:
            return
        with torch.device("cpu"):
            for first in range(self.first, self.last, BLOCK):
                places = torch.arange(first, min(first + BLOCK, self.last))
                self.weight[places - self.first] = values(self.rows_at(places)).to(self.weight)

    def needed(self, device: torch.device) -> int:
        """Bytes of the device that this rank's rows take, and their moments where they are trained."""
        if self.on_host and device.type != "cpu":
            return 0
        return self.weight.nbytes * (3 if self.weight.requires_grad else 1)

    def rows_sharded_parameters(self) -> list[nn.Parameter]:
        """The parameters that DDP and FSDP leave alone: every rank has other rows."""
        return [self.weight]

    def no_weight_decay(self) -> set[str]:
        """Entities that no batch names would fade away."""
        return {"weight"}

    def forward(self, rows: Tensor) -> Tensor:
        """Numbers of rows [n] -> [n, width]. In a step those that it has looked up, NaN for others; outside of one the
        values without a gradient.

        Raises:
            WorkbenchError: outside of a step, the rows are on other ranks.
        """
        if self.step_rows is not None:
            return self.step_rows.pick(rows)
        if self.mapped:
            return self.read(rows)
        if self.ranks == 1:
            return self.weight.detach()[self.places(rows).to(self.weight.device)].to(rows.device)
        if _TRIAL.get():
            return torch.zeros(len(rows), self.width, device=rows.device)
        raise WorkbenchError(
            f"rows of a table that is divided over {self.ranks} ranks are asked for outside of a step, where no rank "
            "waits for another; save the run and read its checkpoint in one process (workbench.load)"
        )

    @torch.no_grad()
    def read(self, rows: Tensor) -> Tensor:
        """Rows of the mapped files [n] -> [n, width], on the device of `rows`; only their pages are read."""
        places = self.places(rows.cpu())
        starts = torch.tensor([first for first, _ in self.mapped])
        ranges = torch.searchsorted(starts, places, right=True) - 1
        found = torch.empty(len(places), self.width)
        for number, (first, values) in enumerate(self.mapped):
            here = (ranges == number).nonzero().squeeze(1)
            found[here] = values[places[here] - first].float()
        return found.to(rows.device)

    def map_files(self, ranges: list[tuple[int, Tensor]]) -> None:
        """Read the rows from these ranges [places, width] from now on, and hold none in memory.

        Args:
            ranges: by first place, which together are the whole table.
        """
        self.mapped = sorted(ranges, key=lambda found: found[0])
        self.weight = nn.Parameter(torch.empty(0, self.width), requires_grad=False)
        self.moments = ()

    def _save_to_state_dict(self, *_: Any) -> None:
        """A rank has some rows alone, which `workbench.runs.table_files` saves."""

    def _load_from_state_dict(self, *_: Any) -> None:
        """As `_save_to_state_dict`."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ShardedTable:
        if self.on_host:
            return self
        self.moments = tuple(fn(moment) for moment in self.moments)
        found: ShardedTable = super()._apply(fn, recurse)
        self.weight.rows_sharded = True  # type: ignore[attr-defined]
        return found

    def __deepcopy__(self, _: Any) -> ShardedTable:
        raise WorkbenchError(
            "a network with a sharded table has no copy: a follower (a moving average) of it would need the whole "
            "table. Use `rows: whole` for its table, or no follower"
        )
