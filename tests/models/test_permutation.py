"""Moving rows about: values and gradients as of plain indexing, and no scattered sum in the backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils._python_dispatch import TorchDispatchMode

from workbench.models.layout import layout_of
from workbench.models.permutation import inverse_of, padded_groups, select
from workbench.sequences.batch import Stream


class Operators(TorchDispatchMode):
    """The names of the operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def gradient(result: Tensor, of: Tensor) -> Tensor:
    torch.manual_seed(1)
    (found,) = torch.autograd.grad((result * torch.randn_like(result)).sum(), of)
    return found


def test_selected_rows_have_the_gradient_of_indexing() -> None:
    rows, order = torch.randn(6, 3, requires_grad=True), torch.tensor([3, 1, 5, 0, 2, 4])
    moved = select(rows, order, inverse_of(order))
    assert torch.equal(moved, rows[order])
    assert torch.equal(gradient(moved, rows), gradient(rows[order], rows))
    assert torch.equal(select(moved, inverse_of(order), order), rows)


def test_a_row_that_stands_nowhere_has_no_gradient() -> None:
    rows, index = torch.randn(4, 2, requires_grad=True), torch.tensor([2, 0])
    found = select(rows, index, torch.tensor([1, -1, 0, -1]), complete=False)
    assert torch.equal(gradient(found, rows), gradient(rows[index], rows))


@pytest.mark.parametrize("counts", [[2, 3, 1], [1], [4, 4]])
def test_groups_are_padded_as_by_torch(counts: list[int]) -> None:
    rows = torch.randn(sum(counts), 2, requires_grad=True)
    wanted = pad_sequence(list(rows.split(counts)), batch_first=True, padding_value=-1.5)
    grid, there = padded_groups(rows, torch.tensor(counts), fill=-1.5)
    assert torch.equal(grid, wanted)
    assert there.sum(1).tolist() == counts
    assert torch.equal(gradient(grid, rows), gradient(wanted, rows))


def test_a_grid_may_be_wider_than_its_groups_and_empty() -> None:
    grid, there = padded_groups(torch.ones(3), torch.tensor([1, 2]), longest=4)
    assert grid.tolist() == [[1, 0, 0, 0], [1, 1, 0, 0]]
    assert torch.equal(grid > 0, there)
    none, _ = padded_groups(torch.zeros(0, requires_grad=True), torch.zeros(0, dtype=torch.long))
    assert none.shape == (0, 1)
    none.sum().backward()


def joined() -> tuple[Any, Tensor]:
    streams = [Stream({}, torch.tensor([0, *n]).cumsum(0), n) for n in ([2, 3, 1], [1, 0, 4])]
    return layout_of(streams), torch.randn(11, 2, requires_grad=True)


def test_joined_streams_are_brought_together_and_back() -> None:
    layout, rows = joined()
    together = layout.contiguous(rows)
    assert torch.equal(together, rows[[0, 1, 6, 2, 3, 4, 5, 7, 8, 9, 10]])
    assert torch.equal(layout.restored(together), rows)
    assert layout.sequence_ids.tolist() == [0] * 3 + [1] * 3 + [2] * 5


def test_the_backward_of_joined_streams_sorts_and_scatters_nothing() -> None:
    layout, rows = joined()
    layout.restored(layout.contiguous(rows) * 2).sum().backward()  # what is made once is made
    with Operators() as seen:
        layout.restored(layout.contiguous(rows) * 2).sum().backward()
    assert seen.names.count("index_select") == 4
    assert not {"sort", "argsort", "index_put", "index_put_", "_index_put_impl_", "index"} & {*seen.names}
