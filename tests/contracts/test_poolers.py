"""Contracts of the poolers: a vector for each sequence that knows nothing of others, gradients, and stated widths."""

from __future__ import annotations

import torch

from tests.contracts.case_finder import make, over
from tests.models.conftest import stream
from workbench.models.pooler import Pooler

LENGTHS, SIZE = [4, 1, 3], 8


def made(name: str) -> Pooler:
    pooler: Pooler = make("pooler", name, {"hidden_size": SIZE})
    return pooler.eval()


def pooled(pooler: Pooler, rows: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    return pooler(pooler.vectors(rows, stream(lengths)))  # type: ignore[no-any-return]


@over("pooler")
def test_vectors_have_the_stated_widths(name: str) -> None:
    pooler, rows = made(name), torch.randn(sum(LENGTHS), SIZE)
    assert pooler.vectors(rows, stream(LENGTHS)).shape == (3, pooler.width * SIZE)
    assert pooled(pooler, rows, LENGTHS).shape == (3, pooler.out_size)


@over("pooler")
def test_a_sequence_is_pooled_by_itself(name: str) -> None:
    pooler, rows = made(name), torch.randn(sum(LENGTHS), SIZE)
    alone = torch.cat([pooled(pooler, each, [len(each)]) for each in rows.split(LENGTHS)])
    torch.testing.assert_close(pooled(pooler, rows, LENGTHS), alone, atol=1e-6, rtol=1e-6)


@over("pooler")
def test_rows_and_all_parameters_get_gradients(name: str) -> None:
    pooler, rows = made(name), torch.randn(sum(LENGTHS), SIZE, requires_grad=True)
    (pooled(pooler, rows, LENGTHS) * torch.randn(3, pooler.out_size)).sum().backward()
    assert all(
        each is not None and each.isfinite().all() and each.any()
        for each in (rows.grad, *(p.grad for p in pooler.parameters()))
    )
