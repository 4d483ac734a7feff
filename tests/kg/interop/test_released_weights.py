"""The authors' weights in the shipped recipes, by the commands: pretrain, encode, fine-tune, and back as they were."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from kg.graph.store import GraphStore
from kg.vectors.vectors import Vectors, save_vectors
from tests.interop.worlds import equal, texts, tokenizer
from workbench.cli.app import app

LAST = "bert.encoder.layer.4.output.{}_ent"
"""What of ERNIE-THU's last layer makes entities that nobody reads."""
STILL = ("train.max_steps=1", "train.global_batch_size=4", "train.micro_batch_size=4", "train.lr=1e-30")
STEPS = (*STILL, "train.lr_schedule.warmup_steps=0", "train.num_workers=0", "train.verify=false")
SMALL = ("model.streams.text.hidden_size=48", "tasks.wiki.sequence.max_length=16")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the recipes read: linked texts, the graph, vectors, a tokenizer."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "corpora"
    texts(folder / "wiki-linked", spans=[[0, 3, "a", 1.0]], mention=[0, 3], types=["place"])
    tokenizer(folder / "tokenizer.json")
    names = [{"id": "a", "label": "old"}, {"id": "b", "label": "river"}]
    GraphStore.build([("a", "r", "b")], folder / "graph", entity_texts=names, relation_labels={"r": "runs"})
    vectors = Vectors(["a", "b"], torch.randn(2, 20), ["r"], torch.randn(1, 20))
    save_vectors(vectors, folder / "entities.safetensors")
    return folder


def run(*arguments: str | Path) -> None:
    with pytest.raises(SystemExit) as ended:
        app.run([str(argument) for argument in arguments], "workbench")
    assert ended.value.code == 0


def fused(number: int, repeat: int = 1) -> list[str]:
    heads = [f"model.layers[{number}].num_heads=[4,4]", f"model.layers[{number}].intermediate_size=96"]
    return heads + ([f"model.layers[{number}].repeat={repeat}"] if number == 2 else [])


def plain(repeat: int) -> list[str]:
    return [f"model.layers[0].{name}" for name in ("num_heads=4", "intermediate_size=96", f"repeat={repeat}")]


def test_ernie_thu(shared: Path, data: Path) -> None:
    golden = shared / "golden/ernie_thu/pretraining"
    streams = ("text.vocab_size=120", "text.max_positions=24", "entity.hidden_size=20")
    sizes = [*SMALL, *(f"model.streams.{size}" for size in streams), *plain(2), *fused(1), *fused(2), *fused(3)]
    run("pretrain", "ernie-thu", f"model.init_from={golden}", *sizes, *STEPS, "-o", "runs/ernie")
    run("encode", "runs/ernie", data / "wiki-linked", "-o", "vectors.safetensors")
    run("finetune", "entity-typing", "runs/ernie", data / "wiki-linked", "--epochs", "1", "--marker", ".", "-o", "t")
    run("export", "runs/ernie", "--output", "back", "--as", "kg.ernie_thu")
    weights, written = (load_file(f) for f in (golden / "weights.safetensors", Path("back/model.safetensors")))
    unread = {name for name in written if name.startswith((LAST.format("dense"), LAST.format("LayerNorm")))}
    equal({name: tensor for name, tensor in written.items() if name not in unread}, weights)
    assert len(unread) == 4
    assert written.keys() == weights.keys()


def test_k_bert(shared: Path, data: Path) -> None:
    golden = shared / "golden/kbert/encoder"
    sizes = [*SMALL, f"tokenizer={golden}", *plain(3)]
    run("pretrain", "k-bert", f"model.init_from={golden}", *sizes, *STEPS, "-o", "runs/k-bert")
    run("encode", "runs/k-bert", data / "wiki-linked", "-o", "vectors.safetensors")
    run("finetune", "entity-typing", "runs/k-bert", data / "wiki-linked", "--epochs", "1", "--marker", "京", "-o", "t")
    run("export", "runs/k-bert", "--output", "back", "--as", "kg.k_bert")
    weights, written = (load_file(f) for f in (golden / "weights.safetensors", Path("back/model.safetensors")))
    equal(written, weights, {"embedding.segment_embedding.weight": slice(1, None)})
    assert {name for name in weights if name not in written} == {"output_layer_2.weight", "output_layer_2.bias"}
