"""Gradients of a loss over the embeddings of a whole step, whatever autograd returns for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from workbench.core.processes.distributed import World
from workbench.pretraining.objective import GlobalBatchHead, LossOutput
from workbench.training.losses import EmbeddedFields, _over_ranks, global_batch_loss

LANES = {lane: {"a": torch.randn(2, 3), "b": torch.randn(2, 3)} for lane in range(3)}
SCORES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "one gradient for both": lambda a, b: (a + b).pow(2),
    "a gradient without memory of its own": lambda a, b: a.sum(0) + 2 * b.mean(),
    "a constant for one": lambda a, b: a.pow(2) + 0 * b.sum(),
    "no gradient for one": lambda a, b: a.pow(3),
}


class ScoreHead(GlobalBatchHead):
    def __init__(self, score: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.score = score

    def loss(self, embedded: EmbeddedFields, own: slice) -> LossOutput:
        return LossOutput(self.score(embedded["a"], embedded["b"])[own.start % 2 :].sum(), {})


@pytest.mark.parametrize("name", SCORES)
def test_gradients_of_all_micro_batches_are_added(name: str) -> None:
    head = ScoreHead(SCORES[name])
    whole = {field: torch.cat([LANES[lane][field] for lane in LANES]).requires_grad_() for field in "ab"}
    rows = {lane: slice(2 * lane, 2 * lane + 2) for lane in LANES}
    loss = torch.stack([head.loss(whole, rows[lane]).loss for lane in LANES]).sum() * 0.5
    wanted = torch.autograd.grad(loss, [*whole.values()], allow_unused=True)
    found = global_batch_loss(head, LANES, 3, 0.5, World()).gradients
    for field, gradient in zip(whole, wanted, strict=True):
        for lane in LANES:
            if gradient is None:
                assert field not in found[lane]
            else:
                torch.testing.assert_close(found[lane][field], gradient[rows[lane]])


@dataclass(frozen=True)
class TwoEqualRanks(World):
    def sum(self, values: Tensor) -> Tensor:
        return values.mul_(2)


def test_gradients_of_ranks_are_added_once() -> None:
    same, spread = torch.ones(4), torch.ones(()).expand(4)
    found = _over_ranks([same, same, spread, None], [torch.zeros(4)] * 4, TwoEqualRanks(size=2))
    assert [None if each is None else each.tolist() for each in found] == [[2.0] * 4] * 3 + [None]
