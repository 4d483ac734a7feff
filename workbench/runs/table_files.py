"""The rows of sharded tables in a checkpoint: a file of each rank, and read again on any number of ranks.

    tables/rank-00000.safetensors   rows and moments of every table, in the order of their places, from the first on

The layout is that of `workbench.runs.pieces`: the metadata has the place of each first row. Training reads the rows of
its rank, a block at a time. Evaluation reads none: it maps the files, and a lookup reads its rows' pages alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.parallel.sharded_table import BLOCK, ShardedTable
from workbench.runs.pieces import Piece, StoredTensors

WEIGHT, MOMENTS = "weight", ("exp_avg", "exp_avg_sq")


def tables_of(root: nn.Module) -> Iterator[tuple[str, ShardedTable]]:
    """The sharded tables of a model, by path."""
    return ((path, module) for path, module in root.named_modules() if isinstance(module, ShardedTable))


def table_pieces(root: nn.Module, *, moments: bool) -> dict[str, Piece]:
    """This rank's rows, and with `moments` those of its rows, by name."""
    pieces = {}
    for path, table in tables_of(root):
        kept = dict(zip(MOMENTS, table.moments, strict=False)) if moments else {}
        for key, rows in {WEIGHT: table.weight.detach(), **kept}.items():
            if len(rows):
                pieces[f"{path}.{key}"] = Piece(rows, (table.first, 0))
    return pieces


def table_updates(root: nn.Module) -> dict[str, int]:
    """The updates of each table so far."""
    return {path: table.updates for path, table in tables_of(root)}


@torch.no_grad()
def read_tables(root: nn.Module, stored: StoredTensors, updates: Mapping[str, int]) -> None:
    """Read the rows and moments of this rank.

    Raises:
        WorkbenchError: the files have no such table, or one of other sizes.
    """
    for path, table in tables_of(root):
        _check(path, table, stored)
        table.updates = updates[path]
        if updates[path]:
            table.moments = torch.empty_like(table.weight), torch.empty_like(table.weight)
        for key, rows in zip((WEIGHT, *MOMENTS), (table.weight, *table.moments), strict=False):
            _read(f"{path}.{key}", table, rows, stored)


@torch.no_grad()
def start_tables(network: nn.Module, prefix: str, stored: StoredTensors, stream: str | None = None) -> None:
    """Give tables of a new run the rows of another run.

    Args:
        prefix: of the names of the other run's network, `networks.main.`.
        stream: the only stream whose embedding is loaded.

    Raises:
        WorkbenchError: a table of the same name has other sizes.
    """
    for path, table in tables_of(network):
        of_stream = stream is None or path.startswith(f"embeddings.{stream}.")
        if of_stream and f"{prefix}{path}.{WEIGHT}" in stored:
            _check(f"{prefix}{path}", table, stored)
            _read(f"{prefix}{path}.{WEIGHT}", table, table.weight, stored)


def _read(name: str, table: ShardedTable, rows: Tensor, stored: StoredTensors) -> None:
    """Read the rows of this rank, a block at a time."""
    for first in range(table.first, table.last, BLOCK):
        size = min(BLOCK, table.last - first)
        found = stored.read(name, ((first, 0), (size, table.width)))
        rows[first - table.first : first - table.first + size] = found.to(rows)


def map_tables(root: nn.Module, stored: StoredTensors) -> None:
    """Have the tables read rows from files, and hold none.

    Raises:
        WorkbenchError: the files have no such table, or one of other sizes.
    """
    for path, table in tables_of(root):
        _check(path, table, stored)
        table.map_files([(offsets[0], rows) for offsets, rows in stored.mapped(f"{path}.{WEIGHT}")])


def _check(path: str, table: ShardedTable, stored: StoredTensors) -> None:
    found, wanted = list(stored.shapes.get(f"{path}.{WEIGHT}", ())), [table.rows, table.width]
    if found != wanted:
        shape = f"one of shape {found}" if found else "none"
        raise WorkbenchError(
            f"the model has a sharded table {path} of shape {wanted}, and the checkpoint {shape}; use the recipe "
            "of the checkpoint"
        )
