"""Rows of a table that a micro-batch needs, known before its forward pass.

A table of millions of rows lies in a file, or is divided over ranks. A lookup in the forward pass would make the GPU
wait for the file, or every rank for all others. So the rows are listed in the loader, where the ids are known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass
class FetchedRows:
    """Some rows of a table.

    Attributes:
        rows: their numbers [fetched], ascending, each once.
        values: the rows [fetched, width]; None where the loader lists them alone, and ranks exchange the values.
    """

    rows: Tensor
    values: Tensor | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> FetchedRows:
        """The same with `function` applied to every tensor; rows without values stay on the host."""
        return self if self.values is None else FetchedRows(function(self.rows), function(self.values))

    def pick(self, wanted: Tensor) -> Tensor:
        """The values of rows [wanted] -> [wanted, width]. A row that was not fetched is NaN, so that a loss shows it:
        a check would make the host wait for the device."""
        assert self.values is not None
        if not len(self.rows):
            return self.values.new_full((len(wanted), self.values.shape[1]), torch.nan)
        at = torch.searchsorted(self.rows, wanted).clamp_max(len(self.rows) - 1)
        found = F.embedding(at, self.values)
        return torch.where((self.rows[at] == wanted).unsqueeze(-1), found, torch.nan)
