"""The card of an exported folder: what it says, what it must not say, whose README is kept."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub import ModelCard

import workbench
from tests.contracts.case_finder import case_of
from tests.contracts.cases import World
from workbench.core.errors import WorkbenchError
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.task_finder import find_task
from workbench.interop import model_card
from workbench.interop.checkpoint_files import WEIGHTS
from workbench.interop.model_card import CARD, MADE_BY
from workbench.runs.folder import read_recipe


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    torch.set_num_threads(1)
    made = case_of("evaluation", "classify").world(tmp_path_factory.mktemp("world"))
    task = find_task("classify")
    evaluate(task, task.scoring(run=made.run, corpus=made.corpus), show=False)
    return made


def test_a_card_says_what_the_model_is_and_how_well_it_did(world: World, tmp_path: Path) -> None:
    folder = workbench.load(world.run).export(tmp_path / "out", "bert")
    text = (folder / CARD).read_text()
    found = ModelCard(text)
    assert found.data.library_name == "transformers"
    assert found.data.to_dict()["pipeline_tag"] == "text-classification"
    (result,) = [json.loads(file.read_text()) for file in (world.run / "evaluations").glob("classify-*.json")]
    number, value = next(iter(result["numbers"].items()))
    assert f"| the model | {number} | {value:.4g} | {result['intervals'][number]['low']:.4g} to " in text
    assert all(f"| baseline: {name} |" in text for name in result["baselines"])
    assert "BertForSequenceClassification" in text
    assert "| not stated |" in text  # the licence of the training set


def test_a_card_names_no_folder_and_counts_no_number_of_seen_texts(world: World, tmp_path: Path) -> None:
    text = (workbench.load(world.run).export(tmp_path / "out", "bert") / CARD).read_text()
    assert str(world.run.parent) not in text
    seen = any(json.loads(file.read_text())["seen"] for file in (world.run / "evaluations").glob("classify-*.json"))
    assert seen == ("Its numbers are too good" in text)
    listed = ModelCard(text).data.to_dict().get("model-index", [{"results": []}])[0]["results"]
    assert (listed == []) == seen


def test_the_export_of_another_run_is_not_replaced(world: World, tmp_path: Path) -> None:
    other, model = workbench.load(world.without), workbench.load(world.run)
    folder = model.export(tmp_path / "out", "bert")
    before = (folder / WEIGHTS).read_bytes()
    with pytest.raises(WorkbenchError, match=r"export of another run, of the recipe .*; choose another folder"):
        other.export(folder, "bert")
    model.export(folder, "bert")
    assert (folder / WEIGHTS).read_bytes() == before


def test_a_run_without_results_says_so(world: World, tmp_path: Path) -> None:
    text = (workbench.load(world.without).export(tmp_path / "out", "bert") / CARD).read_text()
    assert "It was not evaluated." in text
    assert "model-index" not in text


def test_a_readme_of_somebody_s_own_is_kept(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    workbench.load(world.run).export(folder, "bert")
    (folder / CARD).write_text("my own words")
    workbench.load(world.run).export(folder, "bert")
    assert (folder / CARD).read_text() == "my own words"
    (folder / CARD).write_text(f"{MADE_BY}\nof an earlier export")
    workbench.load(world.run).export(folder, "bert")
    assert "earlier" not in (folder / CARD).read_text()


def test_keys_of_the_hub_are_what_all_corpora_state(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = read_recipe(world.run)
    recipe.networks["main"].init_from.clear()
    monkeypatch.setattr(model_card, "licence_of", lambda corpus: "CC BY 4.0")
    read = lambda: ModelCard(model_card.card(recipe, "main", world.run, {}, [], "bert")).data.to_dict()  # noqa: E731
    assert read()["license"] == "cc-by-4.0"
    recipe.networks["main"].init_from.append(SimpleNamespace(weights="hf://org/name/model.safetensors"))  # type: ignore[arg-type]
    assert read()["base_model"] == "org/name"
    assert "license" not in read()  # the weights may have another one
    recipe.networks["main"].init_from.clear()
    monkeypatch.setattr(model_card, "licence_of", lambda corpus: "not stated")
    assert not {"license", "base_model"} & read().keys()
