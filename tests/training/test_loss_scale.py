"""float16: small gradients live by the loss's scale; steps that overflow are skipped, counted and resumed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.short_runs import losses, shorter
from tests.training.test_ranks import columns, run_ranks
from tests.training.test_step import gradients, make, samples, without_dropout
from workbench.core.errors import WorkbenchError
from workbench.core.processes.distributed import World
from workbench.optimization.factory import make_optimizer
from workbench.pretraining.memory import LaneMemory, Memory
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.runs.checkpoint import read_state
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.metrics_file import read_metrics
from workbench.training import loss_scale
from workbench.training.loss_scale import LossScale
from workbench.training.parallel import Work
from workbench.training.pretrain import pretrain
from workbench.training.step import Updater
from workbench.training.verify_resume import verify_resume


def in_half(recipe: Recipe, **changes: Any) -> Recipe:
    return shorter(recipe, precision="float16", **changes)


def test_the_scale_moves_as_torchs_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_scale, "INTERVAL", 3)
    theirs = torch.amp.GradScaler("cpu", init_scale=loss_scale.INITIAL, growth_interval=3)
    ours, draws = LossScale(), torch.Generator().manual_seed(0)
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scales = set()
    for _ in range(60):
        infinite = bool(torch.rand((), generator=draws) < 0.2)
        weight.grad = theirs.scale(torch.ones(2)) * (float("inf") if infinite else 1.0)
        theirs.step(optimizer)
        theirs.update()
        if infinite:
            assert ours.overflowed()
        else:
            ours.passed()
        assert ours.scale == theirs.get_scale()
        scales.add(ours.scale)
    assert len(scales) > 3


def test_losses_are_those_of_float32(recipe: Recipe, tmp_path: Path) -> None:
    pretrain(shorter(recipe, max_steps=8), tmp_path / "full")
    pretrain(in_half(recipe, max_steps=8), tmp_path / "half")
    full, half = losses(tmp_path / "full"), losses(tmp_path / "half")
    assert half == pytest.approx(full, rel=2e-3)
    assert half != full
    record = read_metrics(tmp_path / "half")[-1]
    assert (record["loss_scale"], record["skipped_steps"]) == (2.0**16, 0)
    assert "loss_scale" not in read_metrics(tmp_path / "full")[-1]


@pytest.mark.parametrize("pieces", [[6], [1, 5]])
def test_gradients_are_unscaled_also_those_of_global_batch_heads(
    make_recipe: Any, pieces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_scale, "INITIAL", 256.0)
    recipe = load_recipe(str(make_recipe(without_dropout)), trust=True)
    full, norm = gradients(recipe, pieces)
    half, half_norm = gradients(replace(recipe, train=replace(recipe.train, precision="float16")), pieces)
    assert half_norm == pytest.approx(norm, rel=1e-2)
    assert "heads.contrast.scale" in full
    for name, gradient in full.items():
        torch.testing.assert_close(half[name], gradient, atol=5e-3, rtol=5e-2)


def test_a_step_that_overflows_moves_nothing(make_recipe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights, moments, buffers that follow and what is remembered; the next one moves them."""
    monkeypatch.setattr(loss_scale, "INITIAL", 2.0**40)

    def queueing(tree: dict[str, Any]) -> None:
        without_dropout(tree)
        tree["tasks"]["text"]["objectives"] = [{"objective": "mlm"}, {"objective": "toy_components:Queueing"}]

    recipe = load_recipe(str(make_recipe(queueing)), ["train.precision=float16"], trust=True)
    root, tasks = make(recipe)
    spec = replace(recipe.train, global_batch_size=1, micro_batch_size=1)
    optimizer = make_optimizer(root, spec)
    updater = Updater(root, optimizer, tasks, spec, World(), seed=0, weights={"text": 1.0})
    root.remembered = Memory()
    root.remembered._read["text", 0] = LaneMemory(0, [0])  # as a text that is read on leaves it
    assert updater.loss_scale is not None
    before = {name: tensor.clone() for name, tensor in root.state_dict().items()}
    work = [Work("text", 0, tasks["text"].micro_batch(samples(6), (0, 0, 0)))]
    skipped = 0
    while (result := updater.run(skipped, work)).skipped:
        skipped += 1
        assert not result.losses
        assert not result.metrics
        assert result.samples > 0
        assert updater.loss_scale.scale == 2.0 ** (40 - skipped)
        assert not optimizer.state
        assert not root.remembered._read
        assert not root.remembered._known
        for name, tensor in root.state_dict().items():
            assert torch.equal(tensor, before[name]), name
    assert skipped > 3
    assert optimizer.state
    assert root.heads["queueing"].queue.count_nonzero() > 0
    assert any(not torch.equal(tensor, before[name]) for name, tensor in root.state_dict().items())


def test_what_no_scale_fixes_is_an_error(make_recipe: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(loss_scale, "INITIAL", 4.0)

    def broken(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["objectives"] = [{"objective": "mlm"}]
        tree["model"]["init_range"] = 1.0

    recipe = load_recipe(str(make_recipe(broken)), trust=True)
    recipe = in_half(replace(recipe, train=replace(recipe.train, lr=1000.0)), max_steps=20)
    recipe = replace(recipe, train=replace(recipe.train, optimizer={"optimizer": "torch.optim:SGD"}, clip_norm=None))
    with pytest.raises(WorkbenchError, match=r"overflowed in float16 with a loss scale of 1 too, the smallest"):
        pretrain(recipe, tmp_path / "run")


def test_skipped_steps_are_reported_and_resumed_bit_for_bit(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(loss_scale, "INITIAL", 2.0**20)
    monkeypatch.setattr(loss_scale, "INTERVAL", 2)
    recipe = in_half(recipe, max_steps=8)
    assert verify_resume(recipe, tmp_path, steps=8).equal
    one, other = (read_metrics(tmp_path / name) for name in ("uninterrupted", "interrupted"))
    reported = [(record["loss_scale"], record["skipped_steps"]) for record in one]
    assert reported == [(record["loss_scale"], record["skipped_steps"]) for record in other]
    assert {count for _, count in reported} == {0, 1}
    scales = [scale for scale, _ in reported]
    assert any(after > before for before, after in pairwise(scales))  # grown again
    latest = Checkpoints(tmp_path / "interrupted").latest()
    assert latest is not None
    assert read_state(latest)["loss_scale"]["scale"] == scales[-1]


def steep(tree: dict[str, Any]) -> None:
    """Gradients that overflow with the scale that a run begins with."""
    tree["tasks"]["text"]["objectives"][0]["weight"] = 500.0
    tree["train"].update(max_steps=14, precision="float16")


@pytest.mark.scale
def test_ranks_skip_together(make_recipe: Any, launch: Any, tmp_path: Path) -> None:
    path = make_recipe(steep)
    pretrain(load_recipe(str(path), trust=True), tmp_path / "one")
    run_ranks(launch, 2, path, tmp_path / "two")
    one, two = (columns(tmp_path / name, "loss_scale", "skipped_steps") for name in ("one", "two"))
    assert one[:, 1].sum() > 2
    assert (one == two).all()
    last = [read_metrics(tmp_path / name)[-1]["mlm/loss"] for name in ("one", "two")]
    assert last[1] == pytest.approx(last[0], rel=2e-3)
