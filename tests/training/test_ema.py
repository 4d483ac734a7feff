"""`train.ema`: the moving average by its formula, on resuming, and as the network that evaluate and export read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

import workbench
from tests.training.conftest import tree
from tests.training.short_runs import losses, shorter
from workbench.core.errors import WorkbenchError
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.recipe.train_spec import EmaSpec
from workbench.runs.checkpoint import read_checkpoint
from workbench.runs.loaded_run import load
from workbench.training.plan import check
from workbench.training.pretrain import pretrain
from workbench.training.verify_resume import verify_resume

DECAY = 0.8


@pytest.fixture(scope="module")
def averaged(world_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, Path]:
    """A run of four steps with all its checkpoints."""
    folder = tmp_path_factory.mktemp("ema")
    plain: dict[str, Any] = tree(world_folder)
    plain["train"] |= {"max_steps": 4, "save_every": 1, "keep_last": 9, "ema": {"decay": DECAY}, "lr": 0.05}
    (folder / "ema.yaml").write_text(yaml.safe_dump(plain))
    recipe = load_recipe(str(folder / "ema.yaml"))
    return recipe, pretrain(recipe, folder / "run")


def test_the_average_follows_its_formula_and_changes_nothing_else(
    averaged: tuple[Recipe, Path], tmp_path: Path
) -> None:
    recipe, run = averaged
    start = check(recipe, tmp_path / "plan").model.state_dict()
    expected = {}
    for name, tensor in start.items():
        if name.startswith("networks.main."):
            expected[name.replace("networks.main.", "networks.ema.")] = (name, tensor.clone())
        elif name.startswith("heads."):
            expected[name.replace("heads.", "averages.ema.")] = (name, tensor.clone())
    for step in range(1, 5):
        now = read_checkpoint(run / "checkpoints" / f"step-{step}")
        for name, (followed, average) in expected.items():
            expected[name] = followed, DECAY * average + (1 - DECAY) * now[followed]
            torch.testing.assert_close(now[name], expected[name][1], atol=1e-6, rtol=1e-5)
    assert any(name.startswith("averages.ema.mlm.") for name in expected)
    without = pretrain(replace(recipe, train=replace(recipe.train, ema=None, save_every=0)), tmp_path / "without")
    assert losses(without) == losses(run)


def test_evaluate_and_export_read_it(
    averaged: tuple[Recipe, Path], world_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where the results of a checkpoint are written
    _, run = averaged
    corpus, options = world_folder / "held-out", {"limit": 4}
    main, ema = (
        workbench.evaluate(run, "pseudo-perplexity", corpus, network=name, **options) for name in ("main", "ema")
    )
    assert dict(main) != dict(ema)
    folder = workbench.load(run).export(tmp_path / "bert", "bert", network="ema")
    written, state = load_file(folder / "model.safetensors"), load(run).model.state_dict()
    table = "bert.embeddings.word_embeddings.weight"
    assert torch.equal(written[table], state["networks.ema.embeddings.text.token.weight"])
    dense = next(name for name in written if name.startswith("cls.") and name.endswith("dense.weight"))
    ours = next(t for n, t in state.items() if n.startswith("averages.ema.mlm.") and t.shape == written[dense].shape)
    assert torch.equal(written[dense], ours)
    read = workbench.evaluate(folder, "pseudo-perplexity", corpus, **options)
    assert dict(read) == pytest.approx(dict(ema), rel=1e-5)


def test_it_resumes_exactly(averaged: tuple[Recipe, Path], tmp_path: Path) -> None:
    recipe, run = averaged
    assert verify_resume(recipe, tmp_path / "verified", steps=2).equal
    with pytest.raises(WorkbenchError, match=r"train\.ema\.decay: 0\.8 -> not there"):
        pretrain(replace(recipe, train=replace(recipe.train, ema=None)), run)


def test_the_network_must_be_known(recipe: Recipe) -> None:
    def averaging(average: EmaSpec, **networks: Any) -> Recipe:
        return replace(recipe, model=networks or recipe.model, train=replace(recipe.train, ema=average))

    with pytest.raises(WorkbenchError, match=r"unknown network 'other' in train\.ema\.network"):
        averaging(EmaSpec(network="other"))
    with pytest.raises(WorkbenchError, match="has the networks one, two; name one"):
        averaging(EmaSpec(), one=recipe.model, two=recipe.model)
    with pytest.raises(WorkbenchError, match=r"model\.ema has the name"):
        averaging(EmaSpec(network="one"), one=recipe.model, ema=recipe.model)
    assert shorter(averaging(EmaSpec(network="one"), one=recipe.model, two=recipe.model), max_steps=4).followers
