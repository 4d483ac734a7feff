"""The rows of sharded tables in a step: looked up before the forward passes, updated after them.

Every rank takes part in three exchanges a step and table, whatever its micro-batches need:
    ids        each rank asks the owners for the rows of all its micro-batches, each row once
    rows       the owners send them; they are a leaf of the step's graph
    gradients  of these rows, summed over the rank's micro-batches, go back to the owners, who add those of all ranks
An all-to-all in each forward pass would need as many passes, in one order, on every rank. A step without a micro-batch
on some rank, an objective that is skipped, and a layer that is recomputed change nothing here.

The update is Adam's (Kingma and Ba, arXiv:1412.6980) for the rows with a gradient, and none for others. At the t-th
update of the run, with g the gradient of such a row x, divided and clipped like all others:

    m = b1 m + (1 - b1) g      v = b2 v + (1 - b2) g^2
    x = x - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)

This is lazy Adam, as `torch.optim.SparseAdam` and TensorFlow's LazyAdam have it: moments of rows without a gradient
don't decay, and t counts all updates. There is no weight decay. A row that was looked up and whose gradient is 0 does
not move, as if it had not been looked up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.processes.distributed import World
from workbench.parallel.sharded_table import ShardedTable
from workbench.sequences.batch import MicroBatch
from workbench.sequences.fetched_rows import FetchedRows
from workbench.sequences.transfer import on_device


@dataclass
class Exchange:
    """The way of a step's rows.

    Attributes:
        leaf: the rows [asked, width] that this rank asked for, in ascending order of their numbers.
        order: their order by owner.
        sent, received: how many rows each rank is asked for, and how many it asks this rank for.
        own: which of this rank's rows were asked for, by rank [sum of received].
    """

    leaf: Tensor
    order: Tensor
    sent: list[int]
    received: list[int]
    own: Tensor


@dataclass
class RowGradients:
    """The gradient of a step for some of this rank's rows: `own` [rows], each once, `values` [rows, width]."""

    own: Tensor
    values: Tensor


class TableSteps:
    """Looks rows of a model's sharded tables up for a step, and updates them.

    Args:
        root: the model; its tables belong to embeddings with a `row_field`, for which the loader lists the rows.
    """

    def __init__(self, root: nn.Module, world: World) -> None:
        self.world = world
        self.paths: dict[ShardedTable, list[str]] = {}
        for path, module in root.named_modules(remove_duplicate=False):
            if isinstance(module, ShardedTable):  # of an embedding, which several networks may share
                self.paths.setdefault(module, []).append(path.rpartition(".")[0])
        self.tables = {paths[0]: table for table, paths in self.paths.items()}
        self.exchanges: dict[str, Exchange] = {}
        self.gradients: dict[str, RowGradients] = {}

    def look_up(self, micros: Iterable[MicroBatch | None]) -> None:
        """Look up the rows of all micro-batches that this rank will run; every rank takes part.

        Raises:
            WorkbenchError: a row that the table does not have.
        """
        self.release()
        if not self.tables:
            return
        present = [micro for micro in micros if micro is not None]
        for path, table in self.tables.items():
            named = [each.tables[path].rows for each in present for path in self.paths[table] if path in each.tables]
            rows = torch.cat(named).unique() if named else torch.zeros(0, dtype=torch.long)
            exchange = self._asked(path, table, rows)
            self.exchanges[path] = exchange
            table.step_rows = FetchedRows(on_device(rows, self.world.device), exchange.leaf)

    def _asked(self, path: str, table: ShardedTable, rows: Tensor) -> Exchange:
        if len(rows) and not 0 <= int(rows[0]) <= int(rows[-1]) < table.rows:
            raise WorkbenchError(
                f"{path}: a micro-batch names row {int(rows[-1])} of a table of {table.rows} rows; the transform that "
                "adds the entities must read the same table"
            )
        places = table.places(rows)
        places, order = places.sort()
        sent = torch.bincount(places // table.share, minlength=self.world.size)
        ones = [1] * self.world.size
        received = self.world.exchange(sent, ones, ones).tolist()
        own = self.world.exchange(places, sent.tolist(), received) - table.first
        held = table.weight.detach()[on_device(own, table.weight.device)]
        found = self.world.exchange(held, received, sent.tolist())
        leaf = found.new_empty(found.shape)
        leaf[on_device(order, found.device)] = found
        leaf = on_device(leaf, self.world.device)
        learns = torch.is_grad_enabled() and table.weight.requires_grad
        return Exchange(leaf.requires_grad_(learns), order, sent.tolist(), received, own)

    @property
    def leaves(self) -> list[Tensor]:
        """The looked-up rows, with their gradients."""
        return [exchange.leaf for exchange in self.exchanges.values()]

    @torch.no_grad()
    def reduce(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        """Send the gradients to the owners of the rows; every rank takes part. Those of groups that do not move yet
        (`start_step`) are dropped."""
        for path, exchange in self.exchanges.items():
            table = self.tables[path]
            group = group_of(optimizer, table.weight)
            if group is None or step < group["start_step"]:
                continue
            gradient = torch.zeros_like(exchange.leaf) if exchange.leaf.grad is None else exchange.leaf.grad
            gradient = gradient.to(table.weight.device)
            by_owner = gradient[on_device(exchange.order, gradient.device)]
            found = self.world.exchange(by_owner, exchange.sent, exchange.received)
            own, places = exchange.own.unique(return_inverse=True)
            values = found.new_zeros(len(own), table.width)
            values.index_add_(0, on_device(places, found.device), found)
            # the loss was multiplied by the number of ranks, as DDP averages
            self.gradients[path] = RowGradients(own, values.div_(self.world.size))

    @property
    def row_gradients(self) -> list[Tensor]:
        """The gradients of rows of this rank, for the norm and for clipping."""
        return [gradient.values for gradient in self.gradients.values()]

    @torch.no_grad()
    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """Move the rows that have a gradient."""
        for path, gradient in self.gradients.items():
            table = self.tables[path]
            group = group_of(optimizer, table.weight)
            assert group is not None
            lazy_adam(table, gradient, group)
        self.release()

    def release(self) -> None:
        """Forget the rows and gradients of a step."""
        for table in self.tables.values():
            table.step_rows = None
        self.exchanges, self.gradients = {}, {}


def group_of(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> dict[str, Any] | None:
    """The optimizer's group of a parameter, which has its rate, betas and eps; None where it is not trained."""
    return next((group for group in optimizer.param_groups if any(p is parameter for p in group["params"])), None)


def lazy_adam(table: ShardedTable, gradient: RowGradients, group: dict[str, Any]) -> None:
    """One update of the rows with a gradient, by the formula above."""
    if not table.moments:
        table.moments = torch.zeros_like(table.weight), torch.zeros_like(table.weight)
    table.updates += 1
    own, values = on_device(gradient.own, table.weight.device), gradient.values
    moves = values.any(1, keepdim=True)  # others were looked up alone, by a head or for the collectives of a rank
    rows, first, second = (held[own] for held in (table.weight, *table.moments))
    (b1, b2), t = group["betas"], table.updates
    m, v = first.lerp(values, 1 - b1), (second * b2).addcmul_(values, values, value=1 - b2)
    roots = (v / (1 - b2**t)).sqrt_().add_(group["eps"])
    moved = rows.addcdiv(m, roots, value=-group["lr"] / (1 - b1**t))
    for held, before, after in zip((table.weight, *table.moments), (rows, first, second), (moved, m, v), strict=True):
        held[own] = torch.where(moves, after, before)
