"""The authors' weights in the shipped recipes, by the commands: pretrain, encode, fine-tune, and back as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from kg.graph.store import GraphStore
from kg.vectors.vectors import GraphVectors, save_vectors
from tests.interop.worlds import equal, texts, tokenizer
from workbench.cli.app import app

STILL = ("train.max_steps=1", "train.global_batch_size=4", "train.micro_batch_size=4", "train.lr=1e-30")
STEPS = (*STILL, "train.lr_schedule.warmup_steps=0", "train.num_workers=0", "train.verify=false")
SHORT = "tasks.wiki.sequence.max_length=16"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the recipes read: linked texts, the graph, vectors, a tokenizer."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "corpora"
    texts(folder / "wiki-linked", spans=[[0, 3, "a", 1.0]], mention=[0, 3], types=["place"])
    tokenizer(folder / "tokenizer.json")
    names = [{"id": "a", "label": "old"}, {"id": "b", "label": "river"}]
    GraphStore.build([("a", "r", "b")], folder / "graph", entity_texts=names, relation_labels={"r": "runs"})
    return folder


def run(*arguments: str | Path) -> None:
    with pytest.raises(SystemExit) as ended:
        app.run([str(argument) for argument in arguments], "workbench")
    assert ended.value.code == 0


def config_of(golden: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((golden / "config.json").read_text())
    return config


def both_heads(config: dict[str, Any]) -> list[int]:
    return [config["num_attention_heads"], config["ent_num_attention_heads"]]


def layer(number: int, heads: object, inner: int, repeat: int | None = None) -> list[str]:
    options = {"num_heads": heads, "intermediate_size": inner, **({} if repeat is None else {"repeat": repeat})}
    return [f"model.layers[{number}].{name}={value}".replace(" ", "") for name, value in options.items()]


def test_ernie_thu(shared: Path, data: Path) -> None:
    golden = shared / "golden/ernie_thu/pretraining"
    c = config_of(golden)
    size = c["ent_hidden_size"]
    save_vectors(
        GraphVectors(["a", "b"], torch.randn(2, size), ["r"], torch.randn(1, size)), data / "entities.safetensors"
    )
    kinds, heads, inner = c["layer_types"], c["num_attention_heads"], c["intermediate_size"]
    first, fused = kinds.count("sim"), kinds.count("norm")
    assert kinds == ["sim"] * first + ["mix"] + ["norm"] * fused, "the recipe's stack"
    assert c["num_hidden_layers"] == len(kinds)
    sizes = [
        SHORT,
        f"model.streams.text.hidden_size={c['hidden_size']}",
        f"model.streams.text.vocab_size={c['vocab_size']}",
        f"model.streams.text.max_positions={c['max_position_embeddings']}",
        f"model.streams.entity.hidden_size={c['ent_hidden_size']}",
        *layer(0, heads, inner, first),
        *(option for i, n in enumerate((None, fused - 1, None), 1) for option in layer(i, both_heads(c), inner, n)),
    ]
    run("pretrain", "ernie-thu", f"model.init_from={golden}", *sizes, *STEPS, "-o", "runs/ernie")
    run("encode", "runs/ernie", data / "wiki-linked", "-o", "vectors.safetensors")
    run("finetune", "entity-typing", "runs/ernie", data / "wiki-linked", "--epochs", "1", "--marker", ".", "-o", "t")
    run("export", "runs/ernie", "--output", "back", "--as", "kg.ernie_thu")
    weights, written = (load_file(f) for f in (golden / "weights.safetensors", Path("back/model.safetensors")))
    last = f"bert.encoder.layer.{len(kinds) - 1}.output"  # what makes entities that nobody reads
    unread = {name for name in written if name.startswith((f"{last}.dense_ent", f"{last}.LayerNorm_ent"))}
    equal({name: tensor for name, tensor in written.items() if name not in unread}, weights)
    assert len(unread) == 4
    assert written.keys() == weights.keys()


def test_k_bert(shared: Path, data: Path) -> None:
    golden = shared / "golden/kbert/encoder"
    c = config_of(golden)
    width = f"model.streams.text.hidden_size={c['hidden_size']}"
    block = layer(0, c["heads_num"], c["feedforward_size"], c["layers_num"])
    sizes = [SHORT, width, f"tokenizer={golden}", *block]
    run("pretrain", "k-bert", f"model.init_from={golden}", *sizes, *STEPS, "-o", "runs/k-bert")
    run("encode", "runs/k-bert", data / "wiki-linked", "-o", "vectors.safetensors")
    run("finetune", "entity-typing", "runs/k-bert", data / "wiki-linked", "--epochs", "1", "--marker", "京", "-o", "t")
    run("export", "runs/k-bert", "--output", "back", "--as", "kg.k_bert")
    weights, written = (load_file(f) for f in (golden / "weights.safetensors", Path("back/model.safetensors")))
    equal(written, weights, {"embedding.segment_embedding.weight": slice(1, None)})
    assert all(name.startswith("output_layer") for name in weights.keys() - written.keys()), "a head for classes"
