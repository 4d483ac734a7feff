"""A tiny text corpus and runs on it, of one network and of two."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pipelines.commands.corpora.text import text as prepare_text
from workbench.core.options.command import command
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.shards.writer import ShardWriter
from workbench.recipe.trees import recipe_from_dict
from workbench.text.tokenizer import Tokenizer, train_tokenizer
from workbench.training.pretrain import pretrain

TEXTS = [f"the {colour} {thing} is {state} ." for colour in ("red", "green", "blue") for thing in ("house", "boat")
         for state in ("old", "new", "lost")]  # fmt: skip


def network(width: int) -> dict[str, Any]:
    layer = {"layer": "self", "stream": "text", "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
    text = {"embedding": "token", "hidden_size": width, "max_positions": 40, "dropout": 0.0}
    return {"streams": {"text": text}, "layers": [layer]}


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the corpus `texts` and `tokenizer.json`."""
    torch.set_num_threads(1)
    return make_texts(tmp_path_factory.mktemp("texts"))


def make_texts(folder: Path) -> Path:
    """The corpus `texts` and `tokenizer.json` in the folder."""
    with ShardWriter(folder / "texts" / "part-000000.tar", kind="text") as writer:
        for i, text in enumerate(TEXTS):
            writer.add(f"r{i}", {"text": text, "spans": [], "meta": {}})
    assert writer.info is not None
    provenance: dict[str, Any] = {"command": "test", "inputs": []}
    finish_corpus(folder / "texts", kind="text", shards=[writer.info], provenance=provenance)
    words = [*TEXTS, "a bad film", "a good film", "it was good", "it was bad"]
    Tokenizer(train_tokenizer(words, "wordpiece", 200)).save(folder / "tokenizer.json")
    return folder


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """`prepared(name, rows)`: a corpus that `prepare text` built from JSON lines; made once."""
    folder = tmp_path_factory.mktemp("prepared")

    return lambda name, lines: prepare(folder, name, lines)


def prepare(folder: Path, name: str, lines: list[dict[str, Any]]) -> str:
    """As `prepared`, in the folder."""
    if not (folder / name).exists():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        command(prepare_text)(inputs=[str(folder / f"{name}.jsonl")], output=folder / name, workers=1)
    return str(folder / name)


def recipe_tree(texts: Path, model: dict[str, Any], objectives: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "tokenizer": str(texts / "tokenizer.json"),
        "model": model,
        "tasks": {
            "text": {
                "corpora": [str(texts / "texts")],
                "sequence": {"builder": "document", "max_length": 24},
                "objectives": objectives,
            }
        },
        "train": {"max_steps": 1, "global_batch_size": 8, "micro_batch_size": 8, "lr": 1e-3, "num_workers": 0},
    }


@pytest.fixture(scope="session")
def pretrained(texts: Path) -> Path:
    return pretrain_on(texts)


def pretrain_on(texts: Path) -> Path:
    """A run of one network on what `make_texts` made."""
    tree = recipe_tree(texts, network(16), [{"objective": "mlm"}])
    return pretrain(recipe_from_dict(tree), texts / "runs" / "one")


@pytest.fixture(scope="session")
def two_networks(texts: Path) -> Path:
    """A run of a `small` network, which mlm trains, and a `large` one with an mlm of its own."""
    objectives = [
        {"objective": "mlm", "network": "small"},
        {"objective": "mlm", "name": "other", "network": "large", "view": "second"},
    ]
    tree = recipe_tree(texts, {"small": network(8), "large": network(16)}, objectives)
    return pretrain(recipe_from_dict(tree), texts / "runs" / "two")
