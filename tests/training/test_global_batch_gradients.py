"""Gradients of a loss over the embeddings of a whole step, whatever autograd returns for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.runs.gloo_ranks import Phase, on_ranks
from workbench.core.processes.distributed import World
from workbench.pretraining.objective import GlobalBatchHead, LossOutput
from workbench.training.embedding_gather import EmbeddingGather
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
    found = global_batch_loss(head, LANES, EmbeddingGather(3, World()), 0.5).gradients
    for field, gradient in zip(whole, wanted, strict=True):
        for lane in LANES:
            if gradient is None:
                assert field not in found[lane]
            else:
                torch.testing.assert_close(found[lane][field], gradient[rows[lane]])


def fields_of(lane: int, step: int, width: int) -> EmbeddedFields:
    """A micro-batch of 0 to 3 rows."""
    rows = (lane + step) % 4
    return {
        "states": torch.full((rows, width), lane + step / 8),
        "half": torch.full((rows, 3, 1), lane, dtype=torch.bfloat16),
        "ids": torch.arange(rows) + 10 * lane,
        "flags": torch.ones(rows, dtype=torch.bool),
    }


def gathered_as_tensors(world: World, lanes: int) -> None:
    """The ranks describe their fields at the first step, and where one has others; no other step gathers an object."""
    described: list[int] = []
    plain = World.gather
    World.gather = lambda self, value: described.append(step) or plain(self, value)  # type: ignore[method-assign]
    gather = EmbeddingGather(lanes, world)
    for step, width in enumerate((5, 5, 5, 6, 6)):
        every = {lane: fields_of(lane, step, width) for lane in range(lanes) if (lane, step) != (1, 2)}
        found, rows = gather({lane: every[lane] for lane in range(world.rank, lanes, world.size) if lane in every})
        for name, field in found.items():
            whole = torch.cat([fields[name] for fields in every.values()])
            assert field.dtype == whole.dtype
            assert torch.equal(field, whole)
            assert all(torch.equal(field[rows[lane]], every[lane][name]) for lane in every)
        assert set(found) == {"states", "half", "ids", "flags"}
    assert described == ([0, 3] if world.size > 1 else [])
    step = 5
    if world.size > 1:
        with pytest.raises(ValueError, match="different kinds"):
            gather({lane: fields_of(lane, 1, 2 + lane) for lane in range(world.rank, lanes, world.size)})


@pytest.mark.parametrize(
    ("ranks", "lanes"),
    [(1, 3), (2, 4), *(pytest.param(*case, marks=pytest.mark.scale) for case in [(2, 2), (3, 4), (3, 2)])],
)
def test_a_step_gathers_its_embeddings_as_tensors(tmp_path: Path, ranks: int, lanes: int) -> None:
    on_ranks([Phase(ranks, gathered_as_tensors, (lanes,))], tmp_path / "ranks")


@dataclass(frozen=True)
class TwoEqualRanks(World):
    def sum(self, values: Tensor) -> Tensor:
        return values.mul_(2)


def test_gradients_of_ranks_are_added_once() -> None:
    same, spread = torch.ones(4), torch.ones(()).expand(4)
    found = _over_ranks([same, same, spread, None], [torch.zeros(4)] * 4, TwoEqualRanks(size=2))
    assert [None if each is None else each.tolist() for each in found] == [[2.0] * 4] * 3 + [None]
