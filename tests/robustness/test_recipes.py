"""Wrong recipes and wrong run folders: one message that says where, what is allowed, and nothing is written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Refused = Callable[..., str]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pretain", "bert"], ["pretain", "'workbench pretrain'"]),
        (["evaluate", "vqqa"], ["vqqa", "'workbench evaluate vqa'"]),
        (["pretrain", "brt"], ["unknown recipe 'brt'", "'bert'"]),
        (["pretrain", "gone.yaml"], ["gone.yaml", "looked in"]),
        (["show", "brt", "--batch"], ["unknown recipe 'brt'"]),
        (["verify-resume", "brt"], ["unknown recipe 'brt'"]),
        (["report", "runs/gone"], ["runs/gone"]),
        (["export", "runs/gone", "--as", "bert", "--output", "out"], ["runs/gone"]),
    ],
)
def test_unknown_names(world: Path, refused: Refused, arguments: list[str], words: list[str]) -> None:
    message = refused(*arguments)
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.max_step=3", ["max_step", "'max_steps'", "in train."]),
        ("train.max_steps=many", ["train.max_steps = 'many'", "whole number"]),
        ("train.lr=fast", ["train.lr = 'fast'", "a number"]),
        ("train.micro_batch_size=3", ["global_batch_size = 8 is not a multiple of micro_batch_size = 3"]),
        ("train.lr_schedule=wavy", ["wavy", "linear"]),
        ("train.num_workers=[1]", ["train.num_workers"]),
        ("control=no-graph", ["no-graph", "'no-kg'"]),
        ("control=shuffled-kg", ["control shuffled-kg would change nothing", "support none"]),
        ("schedule=random", ["random", "together, sampled, staged"]),
        ("train", ["'train' is not of the form key=value"]),
        ("train.lr=[1", ["train.lr=[1"]),
        ("model.layers=[{layer: selff, stream: text, num_heads: 2}]", ["unknown layer 'selff'", "'self'"]),
        ("model.layers=[{layer: self, stream: text, num_head: 2}]", ["num_head", "'num_heads'"]),
        ("model.layers=[{layer: self, stream: text, num_heads: two}]", ["num_heads = 'two'", "whole number"]),
        ("model.layers=[{layer: self, stream: txt, num_heads: 2}]", ["txt", "text"]),
        (
            "model.layers=[{layer: self, stream: text, num_heads: 3}]",
            ["layers[0]: layer 'self'", "num_heads = 3", "16"],
        ),
        (
            "model.layers=[{group: [{layer: self, stream: text, num_heads: 3}]}]",
            ["model.layers[0].group[0]: layer"],
        ),
        (
            "tasks.text.objectives=[{objective: mlm, replace: {mask: 0.9, random: 0.5}}]",
            ["text.objectives[0]", "mask = 0.9"],
        ),
        ("tasks.text.objectives=[{objective: mlm, masking: spans}]", ["tasks.text.objectives[0]", "'spans'", "'span'"]),
        ("tasks.text.objectives=[{objective: nsp}]", ["objective 'nsp'", "model.poolers"]),
        ("tasks.text.sequence.max_length=2", ["tasks.text.sequence: builder 'document'", "max_length = 2 leaves no"]),
        ("tasks.text.sequence.max_length=128", ["tasks.text.sequence.max_length = 128", "model.streams.text.max_posi"]),
        ("model.layers=[{layer: own_layer:Mine, stream: text}]", ["no module 'own_layer'", "next to the recipe"]),
        (
            "model.layers=[{layer: kg.models.layers.aggregator:Aggregater, streams: [text]}]",
            ["Aggregater", "'AggregatorLayer'"],
        ),
        ("tasks.text.objectives=[{objective: mlmm}]", ["unknown objective 'mlmm'", "'mlm'"]),
        ("tasks.text.objectives=[{objective: mlm, rates: 0.1}]", ["rates", "'rate'"]),
        ("tasks.text.objectives=[]", ["tasks.text.objectives", "at least 1"]),
        ("tasks.text.objectives=[{objective: mlm},{objective: mlm}]", ["several objectives", "'mlm'"]),
        ("tasks.text.sequence.builder=documents", ["documents", "'document'"]),
        ("tasks.text.corpora=[corpora/gone]", ["corpora/gone"]),
        ("tasks.text.corpora=[]", ["tasks.text", "corpora"]),
        ("tokenizer=gone.json", ["there is no tokenizer at gone.json"]),
        ("tokenizer=notes.txt", ["notes.txt"]),
        ("model.init_from=gone", ["init_from 'gone'", "run folder"]),
        ('model.init_from="a\\0b"', ["model.init_from[0].weights = 'a\\x00b'", "a path or URL"]),
        ('tokenizer="a\\0b"', ["tokenizer = 'a\\x00b'", "a path or URL"]),
        ('tasks.text.corpora=["a\\0b"]', ["tasks.text.corpora", "'a\\x00b'", "a path or URL"]),
        ('tasks.text.objectives=[{objective: "a\\0b"}]', ["unknown objective 'a\\x00b'"]),
        ('tasks.text.objectives=[{objective: "a\\0b:C"}]', ["'a\\x00b:C' is not an import path"]),
        ("train.best=held_out/mlm/loss", ["train.best", "held_out"]),
    ],
)
def test_wrong_overrides(world: Path, refused: Refused, override: str, words: list[str]) -> None:
    before = sorted(world.iterdir())
    message = refused("pretrain", "recipe.yaml", override, "--run", "run")
    for word in words:
        assert word in message
    assert sorted(world.iterdir()) == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model: [", ["recipe.yaml"]),
        ("- a\n- b\n", ["a recipe is a mapping"]),
        ("", ["recipe.yaml"]),
        ("model: {streams: {}, layers: []}\ntasks: {}\n", ["the key 'train' is missing"]),
        ("model: !!python/object/apply:os.system ['touch hacked']\n", ["recipe.yaml"]),
    ],
)
def test_wrong_yaml(world: Path, refused: Refused, text: str, words: list[str]) -> None:
    (world / "recipe.yaml").write_text(text)
    message = refused("pretrain", "recipe.yaml", "--run", "run")
    for word in words:
        assert word in message
    assert not (world / "run").exists()
    assert not (world / "hacked").exists()


def test_a_recipe_that_was_wrong_can_be_fixed(world: Path, refused: Refused, workbench: Any) -> None:
    refused("pretrain", "recipe.yaml", "tasks.text.objectives=[{objective: mlm, rates: 0.1}]", "--run", "run")
    refused("pretrain", "recipe.yaml", "tasks.text.corpora=[corpora/gone]", "--run", "run")
    assert workbench("pretrain", "recipe.yaml", "--run", "run").code == 0


@pytest.fixture
def trained(world: Path, workbench: Any) -> Path:
    assert workbench("pretrain", "recipe.yaml", "--run", "run").code == 0
    return world / "run"


def test_a_run_of_another_recipe(trained: Path, refused: Refused) -> None:
    message = refused("pretrain", "recipe.yaml", "model.streams.text.hidden_size=32", "--run", "run")
    assert "model.streams.text.hidden_size: 16 -> 32" in message


def test_a_checkpoint_of_another_shape(trained: Path, refused: Refused) -> None:
    text = (trained / "recipe.yaml").read_text()
    (trained / "recipe.yaml").write_text(text.replace("hidden_size: 16", "hidden_size: 32"))
    message = refused("pretrain", "run/recipe.yaml", "--run", "run")
    assert "step-4" in message
    assert "found [" in message
    assert "expected [" in message


def test_starting_from_weights_of_another_shape(trained: Path, refused: Refused) -> None:
    message = refused(
        "pretrain", "recipe.yaml", "model.init_from=run", "model.streams.text.hidden_size=32", "--run", "other"
    )
    assert "init_from run" in message
    assert "expected [" in message
    assert not (trained.parent / "other").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "trainer.pt", "state.json"])
def test_a_damaged_checkpoint(trained: Path, workbench: Any, refused: Refused, name: str) -> None:
    """The run continues from the one before, and loses nothing; where none is whole, one message."""
    before = (trained / "metrics.jsonl").read_text()
    path = trained / "checkpoints" / "step-4" / name
    path.write_bytes(path.read_bytes()[:40])
    ended = workbench("pretrain", "recipe.yaml", "--run", "run")
    assert ended.code == 0
    assert "step-4 is no whole checkpoint" in ended.err
    assert "kept as damaged-step-4, continuing from step 2" in ended.err
    assert sorted(p.name for p in path.parents[1].iterdir()) == ["damaged-step-4", "step-2", "step-4"]
    assert losses(before) == losses((trained / "metrics.jsonl").read_text())
    for step in (2, 4):
        (trained / "checkpoints" / f"step-{step}" / name).write_bytes(b"")
    message = refused("pretrain", "recipe.yaml", "--run", "run")
    assert "no checkpoint of run is whole" in message
    assert "step-2" in message


def losses(metrics: str) -> list[tuple[int, float]]:
    return [(record["step"], record["mlm/loss"]) for record in map(json.loads, metrics.splitlines())]


def test_a_run_folder_with_other_things_in_it(world: Path, refused: Refused) -> None:
    (world / "run").mkdir()
    (world / "run" / "thesis.tex").write_text("precious")
    assert "choose another folder" in refused("pretrain", "recipe.yaml", "--run", "run")
    assert [path.name for path in (world / "run").iterdir()] == ["thesis.tex"]


def test_a_full_disk_while_a_checkpoint_is_written(
    world: Path, refused: Refused, workbench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.runs import checkpoint

    real = checkpoint.save_weights

    def full(path: Path, tensors: Any) -> None:
        if "step-4" in str(path):
            raise OSError(28, "No space left on device")
        real(path, tensors)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_weights", full)
        message = refused("pretrain", "recipe.yaml", "--run", "run", code=1)
    assert "step-4" in message
    assert "No space left" in message
    assert [path.name for path in (world / "run" / "checkpoints").iterdir()] == ["step-2"]
    assert workbench("pretrain", "recipe.yaml", "--run", "run").code == 0


def test_a_tokenizer_that_is_a_link_to_itself_is_one_message(world: Path, workbench: Any, refused: Refused) -> None:
    """Also where a run was begun in the folder."""
    assert workbench("pretrain", "recipe.yaml", "--run", "run").code == 0
    for path in ("run/checkpoints", "run/tokenizer.json", "run/data.json"):
        shutil.rmtree(path) if Path(path).is_dir() else Path(path).unlink()
    tokenizer = world / "corpora" / "tokenizer.json"
    tokenizer.unlink()
    tokenizer.symlink_to(tokenizer.name)
    assert "corpora/tokenizer.json" in refused("pretrain", "recipe.yaml", "--run", "run")


def test_a_name_too_long_for_the_system_is_one_short_line(world: Path, refused: Refused) -> None:
    message = refused("pretrain", "recipe.yaml", f"vars.corpus={'x' * 5000}")
    assert message.count("\n") == 0
    assert message.startswith("error: tasks.text: ")
    assert "the name is too long" in message
