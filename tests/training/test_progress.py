"""Hooks hear of the progress of the run, the same however it was interrupted, and the end of it in held-out passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workbench.pretraining.assembly import tasks_of
from workbench.pretraining.forward import ForwardPass, NetworkOutput, ViewKey
from workbench.pretraining.task import Task
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.training.data import first_batches, reader_of
from workbench.training.pretrain import pretrain
from workbench.training.verify_resume import verify_resume


@pytest.fixture
def falling(make_recipe: Any, world_folder: Path) -> Recipe:
    """All words are masked at the beginning and few at the end."""
    rates = ["tasks.text.objectives[0].rate=1", "tasks.text.objectives[0].final_rate=0.1", "train.max_steps=6"]
    held_out = [f"tasks.text.held_out=[{world_folder / 'held-out'}]", "train.evaluate_every=3"]
    return load_recipe(str(make_recipe()), [*rates, *held_out])


def test_the_number_of_labels_follows_the_progress(falling: Recipe) -> None:
    tokenizer, _, first = first_batches(falling)
    task = tasks_of(falling, tokenizer)["text"]
    samples = reader_of(falling, task).micro_batch(0, 0)
    counts = [task.micro_batch(samples, (0, 0, 0), progress).counts["mlm"] for progress in (0.0, 0.5, 1.0)]
    assert first["text"].counts["mlm"] == counts[0]
    assert counts[0] > 1.5 * counts[1] > 2 * counts[2]


def test_every_step_has_its_progress(falling: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: set[tuple[int, int, float]] = set()
    made = Task.micro_batch

    def listening(self: Task, samples: Any, number: Any, progress: float = 1.0) -> Any:
        heard.add((number[0], number[1], progress))
        return made(self, samples, number, progress)

    monkeypatch.setattr(Task, "micro_batch", listening)
    pretrain(falling, tmp_path / "run", until=2)
    pretrain(falling, tmp_path / "run")
    training = {(number, progress) for split, number, progress in heard if split == 0}
    assert training == {(step, step / 6) for step in range(6)}
    assert {progress for split, _, progress in heard if split == 1} == {1.0}


def test_heads_see_the_end_of_the_run_in_held_out_passes(
    falling: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[tuple[bool, float]] = set()
    read = ForwardPass.read

    def watching(self: ForwardPass, place: ViewKey) -> NetworkOutput:
        seen.add((self.networks[place.network].training, self.progress))
        return read(self, place)

    monkeypatch.setattr(ForwardPass, "read", watching)
    pretrain(falling, tmp_path / "run")
    counting = {1.0}  # the forward whose operations are counted
    assert {progress for training, progress in seen if training} - counting == {step / 6 for step in range(6)}
    assert {progress for training, progress in seen if not training} == {1.0}


def test_a_rate_that_falls_continues_exactly(falling: Recipe, tmp_path: Path) -> None:
    verdict = verify_resume(falling, tmp_path / "proof", 6)
    assert verdict.equal, (verdict.different, verdict.weights)


def test_a_length_that_rises_continues_exactly(falling: Recipe, tmp_path: Path) -> None:
    sequence = falling.tasks["text"].sequence
    sequence.builder = {**sequence.builder, "max_length": 32, "length_warmup": {"from": 8, "until": 0.7}}  # type: ignore[dict-item]
    tokenizer, _, first = first_batches(falling)
    task = tasks_of(falling, tokenizer)["text"]
    later = task.micro_batch(reader_of(falling, task).micro_batch(0, 0), (0, 0, 0), 1.0)
    lengths = [max(each.views["main"].streams["text"].lengths) for each in (first["text"], later)]
    assert lengths[0] <= 8 < lengths[1]
    verdict = verify_resume(falling, tmp_path / "proof", 6)
    assert verdict.equal, (verdict.different, verdict.weights)
