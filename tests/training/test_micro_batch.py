"""`train.micro_batch_size: auto`: which sizes are tried, which is taken, and that a run keeps it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from workbench.core.errors import MachineError, WorkbenchError
from workbench.core.processes.distributed import World
from workbench.pretraining.loader import MicroBatches
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.runs.folder import read_recipe
from workbench.text.tokenizer import Tokenizer
from workbench.training import micro_batch, plan
from workbench.training.micro_batch import Trial, largest, possible_sizes, with_micro_batch
from workbench.training.pretrain import pretrain
from workbench.training.verify_resume import verify_resume

CUDA = torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("whole", "ranks", "expected"),
    [(12, 1, [1, 2, 4]), (64, 4, [1, 2, 4, 8, 16]), (6, 4, [1]), (7, 1, [1]), (12, 5, [1, 2]), (3, 4, [])],
)
def test_sizes_divide_the_step_and_serve_every_rank_alike(whole: int, ranks: int, expected: list[int]) -> None:
    assert possible_sizes(whole, ranks) == expected


def test_the_largest_that_fits_is_taken_and_nothing_beyond_is_tried() -> None:
    tried: list[int] = []

    def peak(size: int) -> float:
        tried.append(size)
        return 10.0 * size if size < 16 else float("inf")

    assert largest([1, 2, 4, 8, 16, 32], peak, 50.0) == 4
    assert tried == [1, 2, 4, 8]
    assert largest([1, 2], peak, 5.0) == 0
    assert largest([1, 2, 4, 8, 16, 32], peak, 1000.0) == 8


class Pretend:
    """A trial in which a sample takes a byte of ten."""

    room = 10 / (1 - micro_batch.MARGIN)

    def __init__(self, *_: Any) -> None:
        pass

    def peak(self, size: int) -> float:
        return float(size)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No device: the trial is a pretence, and what is left of it is nothing."""
    monkeypatch.setattr(micro_batch, "Trial", Pretend)
    monkeypatch.setattr(micro_batch, "release_memory", lambda device: None)
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: torch.no_grad())


def auto(recipe: Recipe, **changes: Any) -> Recipe:
    return replace(recipe, train=replace(recipe.train, micro_batch_size="auto", **changes))


@pytest.mark.usefixtures("tried")
def test_ranks_take_the_least_that_any_found(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = auto(recipe, global_batch_size=64)
    assert with_micro_batch(recipe, None, World(device=CUDA)).train.micro_batch_size == 8
    monkeypatch.setattr(World, "gather", lambda self, value: [value, 2])
    found = with_micro_batch(recipe, None, World(device=CUDA)).train
    assert (found.micro_batch_size, found.micro_batch_size_by, found.lanes) == (2, "auto", 32)
    monkeypatch.setattr(World, "gather", lambda self, value: [value, 0])
    with pytest.raises(MachineError, match=r"rank 1 has no room for a step of a single sample in 85% of its free"):
        with_micro_batch(recipe, None, World(device=CUDA))


def test_a_cpu_says_nothing_of_what_fits(make_recipe: Any, tmp_path: Path) -> None:
    recipe = load_recipe(str(make_recipe()), ["train.micro_batch_size=auto"])
    with pytest.raises(WorkbenchError, match=r"micro_batch_size = auto measures the memory of a GPU"):
        pretrain(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(WorkbenchError, match=r"state a number, such as train\.micro_batch_size=8"):
        _ = recipe.train.lanes


def test_a_run_keeps_what_it_found_whatever_the_card_is_later(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [4]

    def finds(recipe: Recipe, tokenizer: Tokenizer | None, world: World) -> Recipe:
        assert tokenizer is not None
        return micro_batch.sized(recipe, found[0])

    monkeypatch.setattr(plan, "with_micro_batch", finds)
    run = tmp_path / "run"
    pretrain(auto(recipe), run, until=3)
    kept = read_recipe(run).train
    assert (kept.micro_batch_size, kept.micro_batch_size_by) == (4, "auto")
    found[0] = 2
    pretrain(auto(recipe), run, until=5)
    assert read_recipe(run).train.micro_batch_size == 4
    pretrain(replace(recipe, train=replace(recipe.train, micro_batch_size=4)), run, until=6)  # or by its number
    with pytest.raises(WorkbenchError, match=r"train\.micro_batch_size: 4 -> 2"):
        pretrain(replace(recipe, train=replace(recipe.train, micro_batch_size=2)), run)
    assert verify_resume(auto(recipe), tmp_path / "proof", 4).equal


def test_a_trial_takes_the_longest_of_several_micro_batches(make_recipe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial itself, on a CPU, whose memory it can't measure; and the run's weights don't know of it."""
    recipe = auto(load_recipe(str(make_recipe())))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 77)
    monkeypatch.setattr(micro_batch, "release_memory", lambda device: None)
    trial = Trial(recipe, Tokenizer.load(str(recipe.tokenizer)), World())
    before = [p.detach().clone() for p in trial.trained]
    assert trial.room == 1000
    assert trial.peak(2) == 77
    assert all(p.grad is not None for p in trial.trained)
    assert any(not torch.equal(p, old) for p, old in zip(trial.trained, before, strict=True))  # it took whole steps
    (longest,) = trial._micro_batches(1)
    rows = [_rows(trial, n) for n in range(8)]
    assert micro_batch._rows(longest) == max(rows) > min(rows)

    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(trial.optimizer, "step", full)
    assert trial.peak(2) == float("inf")


def _rows(trial: Trial, number: int) -> int:
    recipe = micro_batch.sized(trial.recipe, 1)
    batches = MicroBatches(trial.tasks, {n: micro_batch.reader_of(recipe, t) for n, t in trial.tasks.items()})
    micro = batches.micro_batch(micro_batch.MicroBatchId("text", number, 0, 0.0))
    assert micro is not None
    return micro_batch._rows(micro)
