"""The division of a model over ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.processes.distributed import World, data_parallel
from workbench.parallel.mesh import mesh_of
from workbench.recipe.train_spec import ParallelSpec
from workbench.sequences.batch import Batch, MicroBatch, Stream
from workbench.training.parallel import ShardedModel, Work


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


@pytest.mark.parametrize(
    ("own", "others", "stay_shared"),
    [(True, 1, True), (True, 0, False), (False, 1, False), (False, 0, False)],
    ids=["on every rank", "here alone", "elsewhere alone", "nowhere"],
)
def test_views_share_a_stream_where_they_do_on_every_rank(own: bool, others: int, stay_shared: bool) -> None:
    """Of two ranks. A micro-batch that need not change stays the same object."""
    stream = Stream({"input_ids": torch.arange(3)}, torch.tensor([0, 3]), [3])
    other = stream if own else Stream(dict(stream.fields), stream.offsets, stream.lengths)
    micro = MicroBatch("text", {"clean": Batch({"text": stream}), "main": Batch({"text": other})}, {}, (0, 0, 0))
    world = SimpleNamespace(size=2, sum=lambda flags: flags + others)
    (found,) = ShardedModel.agreed(cast(Any, SimpleNamespace(world=world)), [Work("text", 0, micro)])
    assert found.micro is not None
    views = found.micro.views
    assert (views["clean"].streams["text"] is views["main"].streams["text"]) is stay_shared
    assert (found.micro is micro) is not (own and not stay_shared)
    assert found.micro.place == micro.place


@pytest.fixture
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class TwoBranches(nn.Module):
    """A branch that is used, and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, rows: Tensor, branch: str = "used") -> Tensor:
        found: Tensor = getattr(self, branch)(rows).sum()
        return found


def test_replicated_gradients_have_one_copy_and_unused_parameters_none(one_rank: None) -> None:
    """Gradients are views of what is reduced, also after several micro-batches; an optimizer leaves unused ones out."""
    model = TwoBranches()
    replicated = data_parallel(model)
    rows = torch.randn(4, 3)
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        with replicated.no_sync():
            replicated(rows).backward()
        replicated(rows).backward()
        assert all(parameter.grad is None for parameter in model.unused.parameters())
        weight, bias = model.used.weight.grad, model.used.bias.grad
        assert weight is not None
        assert bias is not None
        torch.testing.assert_close(weight, 2 * rows.sum(0).expand(3, 3))
        assert weight.untyped_storage().data_ptr() == bias.untyped_storage().data_ptr()
    with replicated.no_sync():
        replicated(rows, "unused").backward()
    replicated(rows).backward()
    assert all(parameter.grad is not None for parameter in model.unused.parameters())
