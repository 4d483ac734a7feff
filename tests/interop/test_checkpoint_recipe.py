"""A checkpoint is trained further as it lies there: by its folder, or by the file that `recipes --from` writes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from tests.contracts.case_finder import cases_of, over
from tests.contracts.test_families import made
from tests.interop.worlds import equal, photographs, texts, tokenizer
from tests.videos import frame
from workbench.cli.export import export
from workbench.cli.recipes import list_recipes
from workbench.cli.show import show
from workbench.core.errors import WorkbenchError
from workbench.interop.checkpoint_reader import report_tokenizer
from workbench.interop.checkpoint_recipe import checkpoint_recipe_tree, recipe_named
from workbench.interop.checkpoint_writer import ExportedWeights, write_checkpoint_folder
from workbench.interop.rules import to_theirs
from workbench.recipe.spec import NetworkSpec, Recipe
from workbench.recipe.trees import as_tree
from workbench.text import tokenizer as text_tokenizer
from workbench.training.pretrain import pretrain

ONE_STEP = [
    "train.max_steps=1",
    "train.global_batch_size=4",
    "train.micro_batch_size=4",
    "train.num_workers=0",
    "train.verify=false",
    "train.lr=1e-30",
]
LESS = {family: ["tasks.text.objectives[0].sentinels=5"] for family in ("t5", "mt5")}
"""What a few words are too few for."""
IMAGES_ALONE = {"vision.vit", "vision.timm_vit"}
NO_HEAD = {"mobilebert"}
NEED_A_GRAPH = {"kg.ernie_thu", "kg.k_bert", "kg.luke"}


def folder_of(name: str, folder: Path) -> Path:
    """A folder of the family with random weights of its body, and a tokenizer of few words."""
    checkpoint_family, config, network = made(name)
    theirs = to_theirs(network.state_dict(), checkpoint_family.rules(config)).tensors
    write_checkpoint_folder(folder, ExportedWeights(theirs, dict(config), []))
    tokenizer(folder / "tokenizer.json", ("<s>", "</s>", *checkpoint_family.marks.values()))
    return folder


def recipes_of(name: str, capsys: pytest.CaptureFixture[str]) -> Recipe:
    """That of the folder, which is that of the written file."""
    list_recipes(checkpoint_folder="hf/it")
    Path("mine.yaml").write_text(capsys.readouterr().out)
    named, written = recipe_named("hf/it", ONE_STEP), recipe_named("mine.yaml", ONE_STEP)
    assert as_tree(named) == as_tree(written)
    return named


@over("family")
def test_the_folder_and_the_written_file_are_one_recipe(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint_family, config, _ = made(name)
    folder_of(name, Path("hf/it"))
    if cases_of("family")[name].part in NO_HEAD:
        with pytest.raises(WorkbenchError, match="its family names no head"):
            recipes_of(name, capsys)
        return
    if cases_of("family")[name].part in IMAGES_ALONE:
        with pytest.raises(WorkbenchError, match="reads no text, but image"):
            checkpoint_recipe_tree("hf/it")
        return
    recipe = recipes_of(name, capsys)
    (network,) = recipe.networks.values()
    assert network.init_from[0].weights == recipe.tokenizer == "hf/it"
    assert network.layers == checkpoint_family.network(config).layers
    (task,) = recipe.tasks.values()
    heads = checkpoint_family.heads(config).values()
    assert all(any(head.items() <= spec.items() for head in heads) for spec in task.objectives if heads)


FAST = ("bert", "gpt2", "t5", "bart", "vision.clip", "vision.uniter")
TRAINED = [
    pytest.param(name, marks=() if name in FAST else pytest.mark.slow)
    for name, found in cases_of("family").items()
    if found.part not in IMAGES_ALONE | NEED_A_GRAPH | NO_HEAD
]


@pytest.mark.parametrize("name", TRAINED)
def test_every_family_is_trained_further(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes out without a change is what came in."""
    monkeypatch.chdir(tmp_path)
    family = cases_of("family")[name].part
    folder = folder_of(name, Path("hf/it"))
    stream = recipe_named("hf/it").networks["main"].streams.get("image")
    size = (stream or {}).get("feature_size", 4)
    corpus = photographs(Path("pairs"), size, frame(90, (40, 40))) if stream else texts(Path("texts"))
    run = pretrain(recipe_named("hf/it", [*ONE_STEP, f"vars.corpus={corpus}", *LESS.get(family, [])]), Path("run"))
    log = (run / "log.txt").read_text()
    assert "another network than this one" not in log
    assert "computes something else" not in log
    export(run, Path("again"), family)
    theirs, again = load_file(folder / "model.safetensors"), load_file("again/model.safetensors")
    assert theirs.keys() <= again.keys()
    equal(theirs, again)


def test_overrides_add_what_the_release_has_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder_of("bert", Path("bert"))
    changes = [
        *ONE_STEP,
        f"vars.corpus={texts(tmp_path / 'texts')}",
        "model.adapt=[{adapter: lora, rank: 2, targets: ['*.qkv']}]",
    ]
    run = pretrain(recipe_named("./bert", changes), tmp_path / "run")
    assert "adapters.0" in "".join(load_file(run / "checkpoints/step-1/model.safetensors"))
    assert recipe_named("bert").description != recipe_named("./bert").description, "the shipped recipe comes first"
    with pytest.raises(WorkbenchError, match="unknown variable 'corpsu'"):
        recipe_named("./bert", ["vars.corpsu=a"])


def test_special_tokens_that_its_tokenizer_lacks_are_left_out(tmp_path: Path) -> None:
    folder = folder_of("gpt2", tmp_path / "gpt2")
    assert checkpoint_recipe_tree(str(folder))["tasks"]["text"]["sequence"]["end"] == "eos"
    Tokenizer(WordLevel({"[UNK]": 0, "the": 1}, unk_token="[UNK]")).save(str(folder / "tokenizer.json"))
    assert checkpoint_recipe_tree(str(folder))["tasks"]["text"]["sequence"]["end"] is None
    (folder / "tokenizer.json").unlink()
    assert checkpoint_recipe_tree(str(folder))["tokenizer"] == "${vars.data}/tokenizer.json"


def test_a_tokenizer_of_far_fewer_tokens_than_the_network_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = folder_of("bert", tmp_path / "bert")
    words = text_tokenizer.Tokenizer.load(folder)
    for size, reported in ((words.vocab_size * 2, True), (words.vocab_size, False)):
        caplog.clear()
        network = NetworkSpec({"text": {"vocab_size": size}}, [])
        read: Any = SimpleNamespace(network=network, sequence={}, config={})
        report_tokenizer(folder, words, read)
        assert (f"the configuration has vocab_size = {size:,}" in caplog.text) is reported


def test_what_is_no_release_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    with pytest.raises(WorkbenchError, match=r"empty is not a run: .* nor is it a checkpoint"):
        recipe_named("empty")
    Path("run").mkdir()
    Path("run/recipe.yaml").write_text("model: {}")
    with pytest.raises(WorkbenchError, match=r"To resume it: workbench pretrain run/recipe.yaml --output run"):
        recipe_named("run")


def test_other_sizes_are_advised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder_of("bert", Path("hf"))
    changes = [*ONE_STEP, f"tasks.text.corpora=[{texts(tmp_path / 'texts')}]", "tokenizer=hf", "model.init_from=hf"]
    recipe = recipe_named("bert-tiny", [*changes])
    with pytest.raises(WorkbenchError, match=r"shapes differ: .*\. `workbench recipes --from hf > mine.yaml` writes"):
        pretrain(recipe, tmp_path / "run")


def test_show_and_draw_take_a_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = folder_of("bert", Path("hf/small"))
    layers = json.loads((folder / "config.json").read_text())["num_hidden_layers"]
    show(str(folder))
    reported = capsys.readouterr().out
    assert f"{layers} x self(text)" in reported
    assert "workbench pretrain hf/small" in reported
    list_recipes(draw=str(folder))
    assert Path("small.svg").read_text().startswith("<svg")
    list_recipes(checkpoint_folder=str(folder), output=Path("mine.yaml"))
    assert yaml.safe_load(Path("mine.yaml").read_text())["model"]["init_from"] == "hf/small"
