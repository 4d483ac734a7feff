"""The division of a model over ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from workbench.core.errors import WorkbenchError
from workbench.core.processes.distributed import World
from workbench.recipe.spec import ParallelSpec
from workbench.training.parallel import mesh_of


@dataclass(frozen=True)
class Nodes(World):
    """Ranks of nodes with these sizes."""

    sizes: tuple[int, ...] = ()

    def gather(self, value: Any) -> list[Any]:
        return [size for size in self.sizes for _ in range(size)]


def test_nodes_of_different_sizes_are_refused_on_every_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (1, 2):  # each divides the number of ranks
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(size))
        with pytest.raises(WorkbenchError, match=r"nodes have different numbers of ranks \(2 x 1, 1 x 2\)"):
            mesh_of(ParallelSpec("node"), Nodes(size=4, sizes=(1, 1, 2)))
