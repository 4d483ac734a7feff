"""A run from a recipe: metrics, checkpoints, continuing exactly, loading."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench
from tests.training.short_runs import losses, shorter
from workbench.core.errors import WorkbenchError
from workbench.core.files.lock import locked
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.recipe.train_spec import GroupSpec
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.metrics_file import read_metrics
from workbench.runs.names import MODEL
from workbench.runs.weights import read_weights
from workbench.training.pretrain import pretrain
from workbench.training.verify_resume import verify_resume


def test_loss_falls_and_the_folder_is_complete(recipe: Recipe, tmp_path: Path) -> None:
    run = pretrain(shorter(recipe, max_steps=40, lr=0.02), tmp_path / "run")
    values = losses(run)
    assert len(values) == 40
    assert sum(values[-5:]) < 0.8 * sum(values[:5])
    record = read_metrics(run)[-1]
    for name in ("lr", "grad_norm", "tokens_per_second", "samples_per_second", "seconds", "memory_gib"):
        assert record[name] > 0
    assert 0 < record["model_flops_utilisation"] < 1.5
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == ["step-35", "step-40"]
    assert (run / "recipe.yaml").is_file()
    assert "step 40/40" in (run / "log.txt").read_text()
    assert list((run / "tensorboard").iterdir())


def test_resumed_equals_uninterrupted(recipe: Recipe, tmp_path: Path) -> None:
    verdict = verify_resume(recipe, tmp_path / "proof", 8)
    assert verdict.equal
    assert verdict.compared >= 16


def test_a_comparison_takes_no_more_steps_than_the_recipe_has(recipe: Recipe, tmp_path: Path) -> None:
    assert verify_resume(shorter(recipe, max_steps=3), tmp_path / "proof").steps == 3
    with pytest.raises(WorkbenchError, match=r"--steps = 9; allowed: 2 to train\.max_steps = 3"):
        verify_resume(shorter(recipe, max_steps=3), tmp_path / "proof", 9)
    with pytest.raises(WorkbenchError, match=r"train\.max_steps = 1; allowed: 2 or more"):
        verify_resume(shorter(recipe, max_steps=1), tmp_path / "proof")


def test_a_comparison_replaces_the_runs_of_an_earlier_one(recipe: Recipe, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    assert verify_resume(recipe, proof, 2).equal
    assert verify_resume(replace(recipe, seed=recipe.seed + 1), proof, 3).steps == 3
    (proof / "verify-resume.txt").unlink()
    with pytest.raises(WorkbenchError, match=r"uninterrupted exists, and no comparison made it; choose a new folder"):
        verify_resume(recipe, proof, 2)
    assert (proof / "interrupted" / "checkpoints" / "step-3").is_dir()


def test_a_comparison_leaves_a_run_that_somebody_works_in(recipe: Recipe, tmp_path: Path) -> None:
    verify_resume(recipe, tmp_path, 2)
    with locked(tmp_path / "interrupted"), pytest.raises(WorkbenchError, match="interrupted is in use"):
        verify_resume(recipe, tmp_path, 2)
    assert (tmp_path / "uninterrupted" / "checkpoints" / "step-2").is_dir()


def test_a_comparison_that_cannot_start_leaves_nothing(make_recipe: Any, tmp_path: Path) -> None:
    recipe = load_recipe(str(make_recipe(lambda tree: tree["tasks"]["text"].update(corpora=["nowhere"]))))
    with pytest.raises(WorkbenchError, match="nowhere"):
        verify_resume(recipe, tmp_path / "proof", 2)
    assert not (tmp_path / "proof").exists()


def test_verify_resume_sees_a_difference(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.training import trainer

    def forgetful(folder: Path, root: Any, optimizer: Any, world: Any) -> Any:
        state = restore(folder, root, optimizer, world)
        optimizer.state.clear()
        return state

    restore = trainer.restore
    monkeypatch.setattr(trainer, "restore", forgetful)
    verdict = verify_resume(recipe, tmp_path / "proof", 8)
    assert not verdict.equal
    assert verdict.different[0][0] > 4


def test_metrics_windows_survive_a_restart(recipe: Recipe, tmp_path: Path) -> None:
    recipe = shorter(recipe, log_every=4, max_steps=8)
    pretrain(recipe, tmp_path / "whole")
    for until in (3, 6, 8):
        pretrain(recipe, tmp_path / "separated", until=until)
    assert losses(tmp_path / "whole") == losses(tmp_path / "separated")


def test_workers_change_nothing(recipe: Recipe, tmp_path: Path) -> None:
    recipe = shorter(recipe, max_steps=5)
    pretrain(recipe, tmp_path / "none")
    pretrain(shorter(recipe, num_workers=2), tmp_path / "two")
    assert losses(tmp_path / "none") == losses(tmp_path / "two")


def test_lines_beyond_the_checkpoint_are_taken_out(recipe: Recipe, tmp_path: Path) -> None:
    recipe = shorter(recipe, max_steps=6)
    pretrain(recipe, tmp_path / "run", until=3)
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "mlm/loss": 99}\n{"step": 5, "mlm/l')
    pretrain(recipe, tmp_path / "run")
    pretrain(recipe, tmp_path / "whole")
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


@pytest.mark.parametrize("optimizer", ["lamb", "adafactor"])
def test_optimizers_groups_and_late_starts_continue_exactly(recipe: Recipe, tmp_path: Path, optimizer: str) -> None:
    groups = [GroupSpec("heads", lr_factor=2.0), GroupSpec("networks.main.embeddings", start_step=4)]
    recipe = shorter(
        recipe,
        max_steps=8,
        optimizer={"optimizer": optimizer},
        groups=groups,
        layer_decay=0.8,
        save_every=1,
        keep_last=9,
    )
    pretrain(recipe, tmp_path / "whole")
    pretrain(recipe, tmp_path / "run", until=3)
    pretrain(recipe, tmp_path / "run")
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")
    name, steps = "networks.main.embeddings.text.token.weight", Checkpoints(tmp_path / "run")
    tables = [read_weights(steps.path(step) / MODEL)[name] for step in steps.steps()]
    assert [torch.equal(a, b) for a, b in itertools.pairwise(tables)] == [True] * 3 + [False] * 4


def test_load_gives_the_trained_model(recipe: Recipe, tmp_path: Path) -> None:
    run = pretrain(shorter(recipe, max_steps=3), tmp_path / "run")
    one, two = workbench.load(run), workbench.load(run)
    samples = [{"key": "a", "text": "the old river", "draw": (0, 0, 0)}]
    batch = one.tasks["text"].micro_batch(samples, (0, 0, 0))
    with torch.no_grad():
        first, second = (loaded.torch(batch, ["mlm"])["mlm"].loss for loaded in (one, two))
    assert torch.equal(first, second)
    assert one.tokenizer is not None
    assert one.tokenizer.vocab_size == 90
    assert not one.torch.training


def test_load_without_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(WorkbenchError, match="not a run"):
        workbench.load(tmp_path)


def test_non_finite_loss_stops_before_the_update(make_recipe: Any, tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["objectives"].append(
            {"objective": "toy_components:Exploding", "name": "boom", "steps": 3}
        )
        tree["train"].update(save_every=1, keep_last=1)

    recipe = load_recipe(str(make_recipe(change)), trust=True)
    with pytest.raises(WorkbenchError, match="step 4: the loss of objective 'boom' of task 'text' is nan"):
        pretrain(recipe, tmp_path / "run")
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-3"]
    weights = workbench.load(tmp_path / "run", trust=True).torch.state_dict()
    assert all(torch.isfinite(t).all() for t in weights.values())


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_the_loader_keeps_its_words(make_recipe: Any, tmp_path: Path, workers: int) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["objectives"] = [{"objective": "mlm"}, {"objective": "toy_components:Contrast"}]
        tree["tasks"]["text"]["sequence"]["transforms"] = [{"transform": "toy_components:Failing"}]
        tree["train"]["num_workers"] = workers

    with pytest.raises(
        WorkbenchError,
        match=r"^tasks\.text\.sequence\.transforms\[0\]: transform 'toy_components:Failing': sample r\d+ is bad$",
    ):
        pretrain(load_recipe(str(make_recipe(change)), trust=True), tmp_path / "run")


def test_init_from_a_run(make_recipe: Any, recipe: Recipe, tmp_path: Path) -> None:
    source = pretrain(shorter(recipe, max_steps=15, lr=0.02), tmp_path / "source")
    changed = load_recipe(str(make_recipe(lambda t: t["model"].update(init_from=str(source)))))
    pretrain(shorter(changed, lr=1e-30, max_steps=2), tmp_path / "copy")
    one, two = workbench.load(source).torch.state_dict(), workbench.load(tmp_path / "copy").torch.state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_init_from_nothing_that_fits(make_recipe: Any, tmp_path: Path) -> None:
    nowhere = load_recipe(str(make_recipe(lambda t: t["model"].update(init_from=str(tmp_path / "nowhere")))))
    with pytest.raises(WorkbenchError, match="there is no such file or folder"):
        pretrain(nowhere, tmp_path / "run")


def test_init_from_another_size_names_the_tensor(make_recipe: Any, recipe: Recipe, tmp_path: Path) -> None:
    source = pretrain(shorter(recipe, max_steps=1), tmp_path / "source")

    def wider(tree: dict[str, Any]) -> None:
        tree["model"]["init_from"] = str(source)
        tree["model"]["streams"]["text"]["hidden_size"] = 32

    with pytest.raises(WorkbenchError, match=r"embeddings\.text\.\S+: found \[\d+, 16\], expected \[\d+, 32\]"):
        pretrain(load_recipe(str(make_recipe(wider))), tmp_path / "run")


def test_own_modules_travel_with_the_run(make_recipe: Any, tmp_path: Path) -> None:
    def change(tree: dict[str, Any]) -> None:
        tree["tasks"]["text"]["objectives"].append({"objective": "toy_components:Contrast"})

    run = pretrain(load_recipe(str(make_recipe(change)), trust=True), tmp_path / "run", until=1)
    assert (run / "code" / "toy_components.py").read_text() == (tmp_path / "toy_components.py").read_text()
    assert "contrast" in workbench.load(run, trust=True).torch.heads


def test_recomputed_activations_change_nothing(recipe: Recipe, tmp_path: Path) -> None:
    recipe = shorter(recipe, max_steps=3)
    pretrain(recipe, tmp_path / "kept")
    pretrain(shorter(recipe, activation_checkpointing=True), tmp_path / "recomputed")
    assert losses(tmp_path / "kept") == losses(tmp_path / "recomputed")


def test_bfloat16_trains(recipe: Recipe, tmp_path: Path) -> None:
    run = pretrain(shorter(recipe, max_steps=30, lr=0.02, precision="bfloat16"), tmp_path / "run")
    values = losses(run)
    assert sum(values[-5:]) < 0.8 * sum(values[:5])


def test_frozen_parts_stay(recipe: Recipe, tmp_path: Path) -> None:
    recipe = shorter(recipe, max_steps=3, freeze=["networks.main.embeddings"])
    pretrain(recipe, tmp_path / "run", until=1)
    before = workbench.load(tmp_path / "run").torch.state_dict()
    pretrain(recipe, tmp_path / "run")
    after = workbench.load(tmp_path / "run").torch.state_dict()
    changed = {name for name in after if not torch.equal(before[name], after[name])}
    assert changed
    assert not any("embeddings" in name for name in changed)
