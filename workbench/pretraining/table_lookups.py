"""Which rows of tables a micro-batch needs: listed, and of frozen tables read, in the loader's workers.

An embedding with an attribute `row_field` reads rows of a table by that field. Its method `fetches(device)` returns
None where it needs nothing ahead, or a function from numbers of rows [n] to their values [n, width], or to None where
ranks exchange the values. Row r of the table has the number r + 1 in the field; 0 and less name none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.pretraining.model import PretrainingModel
from workbench.pretraining.task import Task, TaskObjective
from workbench.sequences.batch import Batch
from workbench.sequences.fetched_rows import FetchedRows


@dataclass(frozen=True)
class TableLookup:
    """The lookup of one embedding: the network and stream it belongs to, the field that names its rows, and `fetch`,
    as above."""

    network: str
    stream: str
    field: str
    fetch: Callable[[Tensor], Tensor | None]

    def __call__(self, views: Mapping[str, Batch], objectives: Iterable[TaskObjective]) -> FetchedRows:
        """The rows that the views of a micro-batch, and targets of its objectives (`Objective.looks_up`), name."""
        named = [
            view.streams[self.stream].fields[self.field]
            for view in views.values()
            if self.stream in view.streams and self.field in view.streams[self.stream].fields
        ]
        for placed in objectives:
            if placed.network == self.network and placed.view in views:
                targets = views[placed.view].targets.get(placed.name, {})
                looked_up = placed.objective.looks_up
                named += [targets[name] for name in targets.keys() & looked_up if looked_up[name] == self.stream]
        numbers = torch.cat([each.flatten() for each in named] or [torch.zeros(0, dtype=torch.long)]).unique()
        rows = numbers[numbers > 0] - 1
        return FetchedRows(rows, self.fetch(rows))


def connect_tables(tasks: Iterable[Task], root: PretrainingModel, device: torch.device) -> None:
    """Have the micro-batches of tasks list the rows that the model's tables need on a device."""
    lookups: dict[str, TableLookup] = {}
    for name in root.networks:
        for stream, embedding in root.network(name).embeddings.items():
            for path, module in embedding.named_modules(prefix=f"networks.{name}.embeddings.{stream}"):
                fetch = module.fetches(device) if hasattr(module, "row_field") else None
                if fetch is not None and name not in root.followers:
                    lookups[path] = TableLookup(name, stream, str(module.row_field), fetch)
    for task in tasks:
        task.lookups = dict(lookups)
