"""A checkpoint is opened as if it were a run: encoded with, generated from, fine-tuned, exported, as it stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file

from tests.evaluation.conftest import prepare
from tests.interop.test_language_models import released
from tests.interop.worlds import WORDS, equal, tokenizer
from tests.loaded_runs import encode_texts, generate_texts
from workbench.cli.export import export
from workbench.core.errors import WorkbenchError
from workbench.evaluation.finetuning.finetuning import fine_tune, recipe_of, run_folder
from workbench.evaluation.scoring.evaluation import evaluate, results_of
from workbench.evaluation.task_options import ClassifyScoring, ClassifyTuning
from workbench.evaluation.tasks.classify import Classification
from workbench.generation.decoding import Decoding
from workbench.interop.run_or_checkpoint import load, recipe_at
from workbench.runs.data_record import START
from workbench.runs.names import is_run

TEXTS = [" ".join(WORDS[:7]), " ".join(WORDS[5:8])]
BERT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the library writes of BERT with random weights, and a tokenizer next to it."""
    folder = tmp_path_factory.mktemp("checkpoint") / "hugging-face"
    words = tokenizers.Tokenizer.from_file(str(tokenizer(folder / "tokenizer.json")))
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=words.get_vocab_size(), max_position_embeddings=24, **BERT)
    model = transformers.BertForMaskedLM(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    return folder


def test_vectors_are_those_of_the_library(bert: Path) -> None:
    loaded = load(bert)
    found = encode_texts(loaded, TEXTS, pool="summary")
    model = transformers.AutoModel.from_pretrained(bert).eval()
    for text, vector in zip(TEXTS, found, strict=True):
        ids = [2, *loaded.tokenizer.encode(text).ids.tolist(), 3]  # type: ignore[union-attr]
        with torch.no_grad():
            theirs = model(torch.tensor([ids])).last_hidden_state[0, 0]
        torch.testing.assert_close(vector, theirs, atol=1e-5, rtol=1e-5)
    assert [placed.name for placed in loaded.tasks["text"].objectives] == ["mlm"]
    assert loaded.recipe.networks["main"].poolers == []  # the files have none
    assert loaded.data_identities[START][str(bert)].startswith("bert ")


def test_it_is_exported_as_it_was(bert: Path, tmp_path: Path) -> None:
    export(bert, tmp_path / "again", "bert")
    equal(load_file(bert / "model.safetensors"), load_file(tmp_path / "again" / "model.safetensors"))


def test_a_decoder_reads_from_left_to_right_and_continues(tmp_path: Path) -> None:
    folder = tmp_path / "gpt2"
    words = tokenizers.Tokenizer.from_file(str(tokenizer(folder / "tokenizer.json")))
    released(folder, "gpt2", words.get_vocab_size())
    assert recipe_at(folder).tasks["text"].sequence.visibility == "causal"
    (made,) = generate_texts(load(folder), TEXTS[:1], Decoding(max_new_tokens=4))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    ids = words.encode(TEXTS[0]).ids
    options: dict[str, Any] = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    theirs = model.generate(torch.tensor([ids]), **options)[0, len(ids) :]
    assert made == words.decode(theirs.tolist())


def test_it_is_fine_tuned_and_what_comes_out_is_a_run(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reviews = prepare(tmp_path, "reviews", [{"text": text, "labels": {"far": i}} for i, text in enumerate(TEXTS)])
    tuning = ClassifyTuning(run=bert, corpus=reviews, epochs=1.0, batch_size=2, overrides=["train.num_workers=0"])
    assert run_folder(Classification(), tuning) == Path("runs/hugging-face-classify")
    recipe = recipe_of(Classification(), tuning)
    assert (recipe.name, recipe.networks["main"].poolers) == ("hugging-face-classify", ["text"])
    run = fine_tune(Classification(), tuning)
    found = evaluate(Classification(), ClassifyScoring(run=run, corpus=reviews))
    assert found.counts["texts"] == 2
    assert recipe_at(run).tokenizer == str(run / "tokenizer.json")
    assert is_run(run)
    assert results_of(bert) == Path("evaluations/hugging-face")
    Path("evaluations/hugging-face").mkdir(parents=True)
    written = {"task": "cloze", "numbers": {"accuracy": 0.5}, "inputs": {"checkpoint": str(bert)}}
    Path("evaluations/hugging-face/cloze.json").write_text(json.dumps(written))
    assert results_of(bert) == Path("evaluations/hugging-face")
    other = results_of(tmp_path / "elsewhere/hugging-face")  # another checkpoint of that name
    assert other.parent == Path("evaluations")
    assert other.name.startswith("hugging-face-")


def test_what_cannot_be_opened_is_reported(bert: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    with pytest.raises(WorkbenchError, match=r"is not a run: it has no recipe.yaml; nor is it a checkpoint"):
        load(bare)
    (bare / "config.json").write_text((bert / "config.json").read_text())
    weights = load_file(bert / "model.safetensors")
    save_file(weights, bare / "model.safetensors")
    with pytest.raises(WorkbenchError, match="has no tokenizer"):
        load(bare)
    (bare / "tokenizer.json").write_text((bert / "tokenizer.json").read_text())
    with pytest.raises(WorkbenchError, match="control no-kg changes the inputs"):
        load(bare, control="no-kg")
    head = "cls.predictions.transform.LayerNorm.weight"
    save_file({name: tensor for name, tensor in weights.items() if name != head}, bare / "model.safetensors")
    with pytest.raises(WorkbenchError, match=r"only some tensors of a head: it lacks mlm.norm.weight"):
        load(bare)
    first = "bert.encoder.layer.0.output.dense.weight"
    save_file({name: tensor for name, tensor in weights.items() if name != first}, bare / "model.safetensors")
    with pytest.raises(WorkbenchError, match=r"lacks 1 tensors .* layers.0.feed_forward"):
        recipe_at(bare)
