"""Which rows of a text each one sees: a family that reads otherwise is refused, one that can say it says it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel

from tests.contracts.case_finder import case_of
from tests.interop.worlds import model_of, recipe_file, text_task, texts, tokenizer
from workbench.cli.export import export
from workbench.core.errors import WorkbenchError
from workbench.interop.checkpoint_reader import make_family
from workbench.interop.family import FamilyConfig
from workbench.interop.network_description import others
from workbench.pretraining.task import visibilities_of
from workbench.recipe.reading import load_recipe
from workbench.runs.loaded_run import load
from workbench.sequences.batch import collate
from workbench.training.pretrain import pretrain


def run_of(family: str, visibility: str, folder: Path, name: str = "run", **model: Any) -> Path:
    """A run of the family's network with large random weights."""
    config = {
        **case_of("family", family).config,
        "max_position_embeddings": 20,
        "n_positions": 20,
        "layer_norm_eps": 1e-12,
    }
    plain = {**model_of(family, config), "init_range": 0.4, **model}
    task = text_task(texts(folder / name / "texts"), "clm" if visibility == "causal" else "mlm")
    task["sequence"]["visibility"] = visibility
    words = str(tokenizer(folder / name / "tokenizer.json"))
    recipe = recipe_file(folder / name / "recipe.yaml", plain, task, tokenizer=words)
    return pretrain(load_recipe(str(recipe)), folder / name / "it")


@pytest.mark.parametrize("visibility", ["causal", "bidirectional"])
@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
def test_their_library_reads_as_the_run_has_read(family: str, visibility: str, tmp_path: Path) -> None:
    run = run_of(family, visibility, tmp_path)
    export(run, tmp_path / "out", family)
    loaded = load(run)
    batch = collate(loaded.tasks["it"].sequences([{"key": "it", "text": "the old river runs", "draw": (0,)}]))
    theirs = AutoModel.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        states = theirs(batch.streams["text"].fields["input_ids"][None]).last_hidden_state[0]
        torch.testing.assert_close(loaded.model.network()(batch)["text"], states, atol=1e-5, rtol=1e-5)
    config = FamilyConfig(theirs.config.to_dict())
    assert make_family(family).visibility(config) == visibility


@pytest.mark.parametrize(
    ("family", "visibility", "there"),
    [("albert", "causal", "bidirectional"), ("mpnet", "causal", "bidirectional"), ("gpt2", "bidirectional", "causal")],
)
def test_a_family_that_reads_otherwise_is_refused(family: str, visibility: str, there: str, tmp_path: Path) -> None:
    run = run_of(family, visibility, tmp_path)
    with pytest.raises(WorkbenchError, match=rf"visibility \(of the builder\): {visibility} here, {there} there"):
        export(run, tmp_path / "out", family)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", ["run", "checkpoint"])
@pytest.mark.parametrize(("theirs", "ours"), [("causal", "bidirectional"), ("bidirectional", "causal")])
def test_weights_that_read_otherwise_are_reported(theirs: str, ours: str, place: str, tmp_path: Path) -> None:
    source = run_of("bert", theirs, tmp_path, "source")
    if place == "checkpoint":
        export(source, tmp_path / "out", "bert")
        source = tmp_path / "out"
    reported = f"its weights have read texts with visibility {theirs}; here the builder's is {ours}"
    run = run_of("bert", ours, tmp_path, init_from=str(source))
    assert reported in (run / "log.txt").read_text()
    same = run_of("bert", theirs, tmp_path, "same", init_from=str(source))
    assert "have read texts with visibility" not in (same / "log.txt").read_text()


def test_a_network_is_read_in_all_ways_that_it_has_learned(tmp_path: Path) -> None:
    model = model_of("bert", {**case_of("family", "bert").config, "max_position_embeddings": 20})
    task = text_task(texts(tmp_path / "texts"), "mlm")
    recipe = load_recipe(str(recipe_file(tmp_path / "recipe.yaml", model, task)))
    from_left = replace(recipe.tasks["it"], sequence=recipe.tasks["it"].sequence.with_visibility("causal"))
    both = replace(recipe, tasks={**recipe.tasks, "other": from_left})
    assert visibilities_of(both, "main") == {"bidirectional", "causal"}
    assert not others(visibilities_of(both, "main"), frozenset({"causal"}))
    mixture = {"visibility": {"bidirectional": 1, "prefix": 2}}
    text = recipe.tasks["it"].sequence
    mixed = replace(recipe.tasks["it"], sequence=replace(text, builder={"builder": "sentence_pair", **mixture}))
    assert visibilities_of(replace(recipe, tasks={"it": mixed}), "main") == {"bidirectional", "prefix"}
    assert others(visibilities_of(recipe, "main"), frozenset({"causal"}))
