"""A run whose networks remember continues exactly, and held-out passes leave its memory alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from workbench.core.errors import WorkbenchError
from workbench.recipe.reading import load_recipe
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.metrics_file import read_metrics
from workbench.runs.names import MEMORY
from workbench.runs.weights import read_weights
from workbench.training.pretrain import pretrain
from workbench.training.verify_resume import verify_resume


def remembering(world_folder: Path) -> list[str]:
    """The shipped recipe on the tiny corpora, with what could move the memory twice: recomputed layers, held-out passes
    in between, two lanes."""
    return [
        f"tasks.text.corpora=[{world_folder / 'train'}]",
        f"tokenizer={world_folder / 'tokenizer.json'}",
        f"tasks.text.held_out=[{world_folder / 'held-out'}]",
        "tasks.text.sequence.max_length=10",
        "model.memory=6",
        "model.streams.text.hidden_size=32",
        "model.layers[0].intermediate_size=64",
        "train.global_batch_size=8",
        "train.micro_batch_size=4",
        "train.max_steps=9",
        "train.lr_schedule.warmup_steps=0",
        "train.log_every=1",
        "train.evaluate_every=2",
        "train.activation_checkpointing=true",
    ]


def memory_of(run: Path) -> dict[str, torch.Tensor]:
    latest = Checkpoints(run).latest()
    assert latest is not None
    return read_weights(latest / MEMORY)


@pytest.mark.parametrize(
    ("name", "more"), [("transformer-xl-tiny", []), ("xlnet-tiny", ["model.streams.query.hidden_size=32"])]
)
def test_a_run_that_remembers_continues_exactly(world_folder: Path, tmp_path: Path, name: str, more: list[str]) -> None:
    recipe = load_recipe(name, [*remembering(world_folder), *more])
    verdict = verify_resume(recipe, tmp_path, steps=6)
    assert verdict.equal, (verdict.different, verdict.weights)
    assert verdict.compared > 20
    whole, separated = (memory_of(tmp_path / name) for name in ("uninterrupted", "interrupted"))
    assert whole.keys() == separated.keys()
    assert all(torch.equal(tensor, separated[name]) for name, tensor in whole.items())
    assert {name.split("/")[1] for name in whole} == {"0", "1"}
    assert whole["text/1/number"].item() == 5
    assert max(whole["text/0/main/main/streams.text.lengths"].tolist()) == 6


def test_held_out_passes_leave_the_memory_alone_and_have_their_own(world_folder: Path, tmp_path: Path) -> None:
    changes = [*remembering(world_folder), "train.max_steps=4"]
    pretrain(load_recipe("transformer-xl-tiny", changes), tmp_path / "with")
    pretrain(load_recipe("transformer-xl-tiny", [*changes, "train.evaluate_every=0"]), tmp_path / "without")
    one, other = (memory_of(tmp_path / name) for name in ("with", "without"))
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    forgetful = [*changes, "train.lr=1e-12"]  # the weights are the same: what differs is what is seen
    for memory in (6, 0):
        pretrain(load_recipe("transformer-xl-tiny", [*forgetful, f"model.memory={memory}"]), tmp_path / str(memory))
    losses = [
        [r["held_out/clm/loss"] for r in read_metrics(tmp_path / m) if "held_out/clm/loss" in r] for m in ("6", "0")
    ]
    assert losses[0][0] != pytest.approx(losses[1][0], abs=1e-6)
    assert losses[0][0] == pytest.approx(losses[0][1], abs=1e-6)


def test_only_what_remembers_has_a_memory_to_save(world_folder: Path, tmp_path: Path) -> None:
    changes = [*remembering(world_folder), "model.memory=0", "train.max_steps=1"]
    pretrain(load_recipe("transformer-xl-tiny", changes), tmp_path / "run")
    latest = Checkpoints(tmp_path / "run").latest()
    assert latest is not None
    assert not (latest / MEMORY).exists()


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ("model.memory=0", "tasks.text: order: continuous, but no network has a `memory`"),
        ("tasks.text.order=shuffled", "network main: its memory stays empty"),
        ("seed=1", None),
    ],
)
def test_an_order_or_a_memory_alone_is_reported(
    world_folder: Path, tmp_path: Path, change: str, reported: str | None
) -> None:
    changes = [*remembering(world_folder), "train.max_steps=1", change]
    pretrain(load_recipe("transformer-xl-tiny", changes), tmp_path / "run")
    log = (tmp_path / "run" / "log.txt").read_text()
    found = [line for line in log.splitlines() if "memory stays" in line or "no network has" in line]
    assert len(found) == (reported is not None)
    assert reported is None or reported in found[0]


def test_a_changed_memory_is_a_damaged_checkpoint(world_folder: Path, tmp_path: Path) -> None:
    recipe = load_recipe("transformer-xl-tiny", remembering(world_folder))
    pretrain(recipe, tmp_path / "run", until=2)
    latest = Checkpoints(tmp_path / "run").latest()
    assert latest is not None
    with (latest / MEMORY).open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x7f")
    with pytest.raises(WorkbenchError, match=rf"{MEMORY} does not have the checksum"):
        pretrain(recipe, tmp_path / "run", until=3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["tasks.text.sequence.builder=packed"], "holds several texts"),
        (["model.streams.text.max_positions=64"], "has no row. Set its max_positions to null"),
        (["tasks.text.order=backwards"], "tasks.text.order"),
    ],
)
def test_what_cannot_be_read_on_is_refused(
    world_folder: Path, tmp_path: Path, changes: list[str], message: str
) -> None:
    recipe = [*remembering(world_folder), *changes]
    with pytest.raises(WorkbenchError, match=message):
        pretrain(load_recipe("transformer-xl-tiny", recipe), tmp_path / "run")
