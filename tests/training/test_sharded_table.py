"""A sharded table in one process, compared with tables that torch updates."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kg.models.embeddings.entity_table import EntityTableEmbedding
from workbench.core.errors import WorkbenchError
from workbench.core.processes.distributed import World
from workbench.models.initialisation import initialise
from workbench.optimization.clipping import clip_gradients
from workbench.optimization.factory import make_optimizer
from workbench.optimization.optimizers import Adamw
from workbench.parallel.sharded_table import ShardedTable, table_part, trial_rows
from workbench.parallel.table_rows import TableSteps
from workbench.recipe.train_spec import TrainSpec
from workbench.sequences.fetched_rows import FetchedRows
from workbench.training import capacity


def spec(**options: Any) -> TrainSpec:
    return TrainSpec(max_steps=1, global_batch_size=1, micro_batch_size=1, lr=0.1, **options)


GROUP = {"start_step": 0, "lr_factor": 1.0, "decayed": False, "weight_decay": 0.0}


@pytest.mark.parametrize("rows", [1, 2, 7, 30, 1000])
@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_every_row_is_on_one_rank(rows: int, ranks: int) -> None:
    found = []
    for rank in range(ranks):
        with table_part(rank, ranks):
            table = ShardedTable(rows, 2)
        table.fill(lambda at: at[:, None].float().expand(-1, 2))
        assert torch.equal(table.places(table.rows_at(torch.arange(rows))), torch.arange(rows))
        found += table.weight[:, 0].tolist()
    assert sorted(found) == list(range(rows))


def test_the_most_frequent_rows_are_on_all_ranks() -> None:
    with table_part(0, 8):
        table = ShardedTable(1_000_003, 1)
    for first in (80, 800, 8000):
        counts = torch.bincount(table.places(torch.arange(first)) // table.share, minlength=8)
        assert counts.max() - counts.min() <= 3


def test_the_first_values_do_not_depend_on_ranks() -> None:
    def embedding(rows: str) -> EntityTableEmbedding:
        made = EntityTableEmbedding(11, trainable=True, hidden_size=3, rows=rows, seed=5)  # type: ignore[arg-type]
        initialise(made, 0.1)
        return made

    ids = torch.arange(12)
    whole = embedding("whole")({"entity_ids": ids}).detach()
    assert whole[0].eq(0).all()
    assert whole[1:].std() == pytest.approx(0.1, rel=0.4)
    assert torch.equal(embedding("sharded")({"entity_ids": ids}), whole)
    with table_part(1, 2):
        second = embedding("sharded").table
    assert second is not None
    assert torch.equal(second.weight, whole[1:][second.rows_at(torch.arange(6, 11))])


def step(steps: TableSteps, table: ShardedTable, optimizer: Any, micros: list[Tensor], clip: float) -> float:
    """A step whose loss is the sum of squares of the micro-batches' rows; returns the norm."""
    steps.look_up(SimpleNamespace(tables={"": FetchedRows(rows.unique())}) for rows in micros)  # type: ignore[misc]
    for rows in micros:
        table(rows).square().sum().backward()
    steps.reduce(optimizer, 0)
    norm = clip_gradients([], clip, steps.row_gradients)
    steps.update(optimizer)
    return float(norm)


def test_the_update_is_that_of_sparse_adam() -> None:
    """torch adds eps before the bias of the second moment is taken out, which is not seen with a small one."""
    torch.manual_seed(0)
    values, micros = torch.randn(20, 4), [[torch.randint(20, (5,)) for _ in range(2)] for _ in range(6)]
    table = ShardedTable(20, 4)
    table.fill(lambda at: values[at])
    steps = TableSteps(nn.Sequential(table), World())
    groups = [{"params": [table.weight], "lr": 0.1, **GROUP}]
    optimizer = Adamw(groups, 0.1, betas=[0.8, 0.9], eps=1e-20)
    reference = nn.Embedding.from_pretrained(values.clone(), freeze=False, sparse=True)
    sparse = torch.optim.SparseAdam(reference.parameters(), 0.1, betas=(0.8, 0.9), eps=1e-20)
    for each in micros:
        norm = step(steps, table, optimizer, each, 1.0)
        sparse.zero_grad()
        sum(reference(rows).square().sum() for rows in each).backward()  # type: ignore[union-attr]
        gradient = reference.weight.grad
        assert gradient is not None
        assert float(gradient.coalesce().values().norm()) == pytest.approx(norm, rel=1e-5)
        reference.weight.grad = gradient * (1 / (norm + 1e-6))
        sparse.step()
    torch.testing.assert_close(table(torch.arange(20)), reference.weight.detach(), atol=1e-6, rtol=1e-6)
    assert not table(torch.arange(20)).isclose(values).all(1).all()


def test_rows_whose_gradient_is_0_do_not_move() -> None:
    """Their moments would move them, and another number of ranks may look other rows up."""
    table = ShardedTable(9, 2)
    table.fill(lambda at: 1.0 + at[:, None].float().expand(-1, 2))
    steps, optimizer = TableSteps(nn.Sequential(table), World()), Adamw([{"params": [table.weight], **GROUP}], 0.1)
    step(steps, table, optimizer, [torch.tensor([2, 5])], 1.0)
    before = table(torch.arange(9)).clone()
    steps.look_up([SimpleNamespace(tables={"": FetchedRows(torch.tensor([2, 5]))})])  # type: ignore[list-item]
    (table(torch.tensor([2, 5])) * torch.tensor([[0.0], [1.0]])).sum().backward()
    steps.reduce(optimizer, 1)
    steps.update(optimizer)
    assert (table(torch.arange(9)) != before).any(1).nonzero().flatten().tolist() == [5]


def test_a_step_never_has_a_gradient_of_the_size_of_the_table() -> None:
    """In 40 MB of rows nothing but the rows of the step is touched: neither a gradient nor a new moment."""
    table = ShardedTable(10**6, 10)
    table.moments = torch.zeros(10**6, 10), torch.zeros(10**6, 10)
    steps, optimizer = TableSteps(nn.Sequential(table), World()), Adamw([{"params": [table.weight], **GROUP}], 0.1)
    largest = 0

    class Sizes(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            held = (table.weight.data_ptr(), *(moment.data_ptr() for moment in table.moments))
            if isinstance(out, Tensor) and out.data_ptr() not in held:
                largest = max(largest, out.numel())
            return out

    with Sizes():
        step(steps, table, optimizer, [torch.arange(0, 10**6, 10**4)], 1.0)
    assert table.weight.grad is None
    assert 1000 <= largest <= 2000


def test_the_memory_of_a_rank_is_that_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 of 13 MB: the check before a run counts neither other ranks' rows nor a gradient, nor the host's on a GPU."""

    def refused(on_host: bool, free: int, device: str = "cpu") -> bool:
        monkeypatch.setattr(capacity, "free_memory", lambda _: free)
        with table_part(0, 4):
            try:
                capacity.check_memory(lambda: ShardedTable(10**5, 32, on_host), spec(), torch.device(device), parts=4)
            except WorkbenchError:
                return True
        return False

    needed = 25_000 * 32 * 4 * 3
    assert [refused(False, free) for free in (needed - 1, needed)] == [True, False]
    assert not refused(True, 0, "cuda")
    assert refused(True, needed - 1)


def test_rows_that_were_not_looked_up_are_seen_in_the_loss() -> None:
    table = ShardedTable(9, 2)
    table.fill(lambda at: at[:, None].float().expand(-1, 2))
    steps = TableSteps(nn.Sequential(table), World())
    steps.look_up([SimpleNamespace(tables={"": FetchedRows(torch.tensor([2, 5]))})])  # type: ignore[list-item]
    assert table(torch.tensor([5, 2, 5]))[:, 0].tolist() == [5, 2, 5]
    assert table(torch.tensor([5, 3]))[:, 0].isnan().tolist() == [False, True]
    with pytest.raises(WorkbenchError, match=r"names row 9 of a table of 9 rows; the transform"):
        steps.look_up([SimpleNamespace(tables={"": FetchedRows(torch.tensor([9]))})])  # type: ignore[list-item]


def test_rows_of_other_ranks_are_not_made_up() -> None:
    with table_part(0, 2):
        table = ShardedTable(9, 2)
    with pytest.raises(WorkbenchError, match=r"divided over 2 ranks are asked for outside of a step.*workbench\.load"):
        table(torch.tensor([1]))
    with trial_rows():
        assert table(torch.tensor([1])).tolist() == [[0, 0]]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(WorkbenchError, match=r"a network with a sharded table has no copy.*or no follower"):
        copy.deepcopy(ShardedTable(3, 2))
    with pytest.raises(WorkbenchError, match="rows = 'sharded' is for a trainable table"):
        EntityTableEmbedding(torch.ones(3, 2), rows="sharded")
    with pytest.raises(WorkbenchError, match="memory = 'host' is for rows: sharded"):
        EntityTableEmbedding(torch.ones(3, 2), trainable=True, memory="host")
    with pytest.raises(WorkbenchError, match="path = 7 is a number of entities without vectors"):
        EntityTableEmbedding(7, trainable=True)
    root = nn.ModuleDict({"table": ShardedTable(3, 2), "line": nn.Linear(2, 2)})
    with pytest.raises(WorkbenchError, match=r"'adafactor' has no rule for .*table\.weight.*allowed: adamw, lamb"):
        make_optimizer(root, spec(optimizer={"optimizer": "adafactor"}))
    assert make_optimizer(root, spec()).param_groups
    with pytest.raises(WorkbenchError, match="nothing is trained but a sharded table"):
        make_optimizer(nn.ModuleDict({"table": ShardedTable(3, 2)}), spec())
