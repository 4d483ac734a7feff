"""A family of one's own, in a file next to the recipe: out by `--as`, in by `checkpoint_family`, and only where it is
trusted."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import workbench
from tests.interop.worlds import recipe_file, text_task, texts, tokenizer
from workbench.cli.export import export
from workbench.components import trust
from workbench.components.trust import allow
from workbench.core.errors import WorkbenchError
from workbench.interop import checkpoint_reader as reading
from workbench.interop import checkpoint_writer as exporting
from workbench.interop.checkpoint_files import find_files
from workbench.interop.checkpoint_recipe import checkpoint_recipe_yaml, recipe_named
from workbench.interop.checkpoint_writer import exported_weights, write_checkpoint_folder
from workbench.interop.families.bert import Bert
from workbench.interop.family import FamilyConfig
from workbench.models.network import Network
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import NetworkSpec, Spec
from workbench.training.pretrain import pretrain

FAMILY = '''
from workbench.interop import bert_names
from workbench.interop.families.bert import Bert


class Mine(Bert):
    """Our own names."""

    def heads(self, config):
        return {}

    def rules(self, config):
        blocks = bert_names.layers("mine.blocks", config["num_hidden_layers"])
        return [*bert_names.embeddings("mine.words"), *blocks]
'''


def test_a_family_next_to_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_releases.py").write_text(FAMILY)
    text = {"embedding": "token", "hidden_size": 8, "max_positions": 20}
    model = {"streams": {"text": text}, "layers": [{"layer": "self", "stream": "text", "num_heads": 2, "repeat": 2}]}
    task, words = text_task(texts(tmp_path / "texts"), "mlm"), str(tokenizer(tmp_path / "tokenizer.json"))
    first = pretrain(load_recipe(str(recipe_file(tmp_path / "a.yaml", model, task, tokenizer=words))), tmp_path / "a")
    with pytest.raises(WorkbenchError, match=r"my_releases\.py"):
        export(first, tmp_path / "out", "my_releases:Mine")
    export(first, tmp_path / "out", "my_releases:Mine", trust=True)
    assert {name.split(".")[1] for name in load_file(tmp_path / "out" / "model.safetensors")} == {"words", "blocks"}
    model["init_from"] = {"weights": str(tmp_path / "out"), "family": "my_releases:Mine"}
    second = recipe_file(tmp_path / "b.yaml", model, task, tokenizer=words, seed=7)
    with pytest.raises(WorkbenchError, match=r"my_releases\.py"):
        load_recipe(str(second))
    run = pretrain(load_recipe(str(second), trust=True), tmp_path / "b")
    old, new = (workbench.load(r, trust=True).torch.network().state_dict() for r in (first, run))
    for name, tensor in old.items():
        torch.testing.assert_close(new[name], tensor, atol=1e-20, rtol=0)


def test_a_folder_of_a_family_that_is_not_recognised_and_has_no_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pretrain FOLDER` and `recipes --from FOLDER` take what their messages ask for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "unseen_releases.py").write_text(FAMILY.replace("class Mine", "class Unseen"))
    text = {"embedding": "token", "hidden_size": 8, "vocab_size": 10, "max_positions": 20}
    spec = NetworkSpec({"text": text}, [{"layer": "self", "stream": "text", "num_heads": 2, "intermediate_size": 32}])
    monkeypatch.setattr(trust, "_trusted", set())
    family, learns = "model.init_from.family=unseen_releases:Unseen", "tasks.text.objectives=[{objective: mlm}]"
    allow(["unseen_releases:Unseen"], tmp_path, "test", trust=True)
    written = exported_weights("unseen_releases:Unseen", Network(spec), spec, torch.nn.ModuleDict(), {})
    write_checkpoint_folder(tmp_path / "hf", written._replace(config={**written.config, "model_type": "unseen"}))
    with pytest.raises(WorkbenchError, match=r"no known family.*`model\.init_from\.family=FAMILY`"):
        recipe_named("hf", [learns])
    with pytest.raises(WorkbenchError, match=r"names no head.*name one, such as 'tasks\.text\.objectives="):
        recipe_named("hf", [family], trust=True)
    recipe = recipe_named("hf", [family, learns, "tokenizer=t.json"], trust=True)
    (source,) = recipe.networks["main"].init_from
    assert (source.weights, source.family) == ("hf", "unseen_releases:Unseen")
    with pytest.raises(WorkbenchError, match="names no head"):
        checkpoint_recipe_yaml("hf", [family], trust=True)
    (tmp_path / "mine.yaml").write_text(checkpoint_recipe_yaml("hf", [family, learns, "tokenizer=t.json"], trust=True))
    assert replace(load_recipe("mine.yaml", trust=True), name="hf") == recipe


class Nameless(Bert):
    def heads(self, config: FamilyConfig) -> dict[str, Spec]:
        return {"mlm": {}}


def test_heads_without_their_objective_are_the_familys_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the network's, that is to be written, nor the folder's, that is read."""
    text = {"embedding": "token", "hidden_size": 8, "vocab_size": 10, "max_positions": 20}
    spec = NetworkSpec({"text": text}, [{"layer": "self", "stream": "text", "num_heads": 2}])
    network = Network(spec)
    reported = r"Nameless: heads returned \{\} for 'mlm'; allowed: .*\{\"objective\": NAME"
    write_checkpoint_folder(tmp_path, exported_weights("bert", network, spec, torch.nn.ModuleDict(), {}))
    for module in (exporting, reading):
        monkeypatch.setattr(module, "make_family", lambda name: Nameless())
    with pytest.raises(WorkbenchError, match=reported) as refused:
        exported_weights("mine", network, spec, torch.nn.ModuleDict(), {})
    assert "no form in the family" not in str(refused.value)
    files = find_files(tmp_path)
    assert files is not None
    with pytest.raises(WorkbenchError, match=reported):
        reading.read_checkpoint_folder(files, "mine:Nameless")
