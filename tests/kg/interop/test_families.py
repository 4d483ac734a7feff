"""ERNIE-THU and K-BERT: from the authors' files by a recipe into a run, by the command back: nothing has changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from kg.vectors.vectors import GraphVectors, save_vectors
from tests.interop.worlds import as_torch, equal, model_of, recipe_file, text_task, texts, there_and_back, tokenizer


def task_of(tmp_path: Path, *objectives: str) -> tuple[dict[str, Any], str]:
    return text_task(texts(tmp_path / "texts"), *objectives), str(tokenizer(tmp_path / "tokenizer.json"))


@pytest.mark.parametrize("left_to_the_file", [False, True])
def test_ernie_thu(left_to_the_file: bool, shared: Path, tmp_path: Path) -> None:
    golden = shared / "golden/ernie_thu/pretraining"
    config = json.loads((golden / "config.json").read_text())
    size = config["ent_hidden_size"]
    save_vectors(
        GraphVectors(["a", "b"], torch.randn(2, size), ["r"], torch.randn(1, size)), tmp_path / "v.safetensors"
    )
    model = model_of("kg.ernie_thu", config, entity={"path": str(tmp_path / "v.safetensors")})
    if left_to_the_file:
        del model["streams"]["entity"]["hidden_size"]
    task, words = task_of(tmp_path, "mlm", "nsp")
    recipe = recipe_file(tmp_path / "r.yaml", {**model, "init_from": str(golden)}, task, tokenizer=words)
    written = there_and_back(tmp_path, recipe, "ernie-thu")
    weights = load_file(golden / "weights.safetensors")
    equal(written, weights)
    assert written.keys() == {name for name in weights if not name.startswith("cls.predictions_ent")}


def test_k_bert_from_a_file_of_torch(shared: Path, tmp_path: Path) -> None:
    golden = shared / "golden/kbert/encoder"
    (tmp_path / "theirs").mkdir()
    file = as_torch(golden / "weights.safetensors", tmp_path / "theirs" / "google_model.bin")
    config = json.loads((golden / "config.json").read_text())
    heads = config["heads_num"]
    (tmp_path / "theirs" / "config.json").write_text(
        json.dumps({"heads_num": heads})
    )  # the rest is what the tensors' shapes say
    model = {**model_of("kg.k_bert", config), "init_from": {"weights": str(file)}}
    task, words = task_of(tmp_path, "mlm")
    recipe = recipe_file(tmp_path / "r.yaml", model, task, tokenizer=words)
    written = there_and_back(tmp_path, recipe, "kg.k_bert")
    weights = load_file(golden / "weights.safetensors")
    equal(written, weights, {"embedding.segment_embedding.weight": slice(1, None)})
    left = sorted(weights.keys() - written.keys())
    assert all(name.startswith("output_layer") for name in left), "a head for classes"
    assert f"{len(left)} without a counterpart here: {left[0]}" in (tmp_path / "run" / "log.txt").read_text()
