"""Families of texts: from their folder by a recipe into a run, by the command back, and nothing has changed."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.evaluation.conftest import prepare
from tests.interop.worlds import (
    WORDS,
    equal,
    hugging_face,
    model_of,
    recipe_file,
    text_task,
    texts,
    there_and_back,
    tokenizer,
)
from workbench.cli.export import export
from workbench.evaluation.finetuning.finetuning import fine_tune
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.task_options import ClassifyScoring, ClassifyTuning
from workbench.evaluation.tasks.classify import Classification
from workbench.recipe.reading import load_recipe
from workbench.runs.loaded_run import load
from workbench.sequences.batch import Batch, Stream
from workbench.training.pretrain import pretrain

HEADS = {
    "bert": ("bert", ["mlm", "nsp"]),
    "roberta": ("roberta", ["mlm"]),
    "albert": ("albert", ["mlm", "sop"]),
    "t5": ("t5", ["span_corruption"]),
    "t5_v1_1": ("t5", ["span_corruption"]),
}
NOT_READ = {"roberta.embeddings.position_embeddings.weight": slice(2, None)}
"""Rows of tables that theirs and ours both read, where not all are."""


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return texts(tmp_path / "texts")


def start(golden: str, shared: Path, tmp_path: Path, corpus: Path) -> tuple[Path, Path]:
    """The family's folder, and a recipe that starts from it."""
    family, heads = HEADS[golden]
    folder = hugging_face(shared / "golden/hf" / golden, tmp_path / "theirs")
    config = json.loads((folder / "config.json").read_text())
    model = {**model_of(family, config), "init_from": str(folder)}
    if golden == "roberta":  # its class for masked words has no pooler
        model["poolers"] = []
    task = text_task(corpus, *heads)
    if golden.startswith("t5"):
        options: dict[str, Any] = {"head": {"tied": golden == "t5"}, "sentinels": 9}
    elif golden == "albert":
        options = {"head": {"transform": {"activation": "gelu_tanh"}}}
    else:
        options = {"head": {"transform": {"norm_eps": config.get("layer_norm_eps", 1e-12)}}}
    task["objectives"][0] |= options
    recipe = recipe_file(tmp_path / "recipe.yaml", model, task, tokenizer=str(tokenizer(tmp_path / "tokenizer.json")))
    return folder, recipe


@pytest.mark.parametrize("golden", HEADS)
def test_there_and_back_is_bit_equal(golden: str, shared: Path, tmp_path: Path, corpus: Path) -> None:
    folder, recipe = start(golden, shared, tmp_path, corpus)
    written = there_and_back(tmp_path, recipe, HEADS[golden][0])
    weights = load_file(shared / "golden/hf" / golden / "weights.safetensors")
    equal(written, weights, NOT_READ)
    assert written.keys() == weights.keys()
    same_states(folder, tmp_path / "exported")


def test_electra_s_generator_and_discriminator(shared: Path, tmp_path: Path, corpus: Path) -> None:
    """Two networks of one recipe, each from a checkpoint of its own, and each written by its name."""
    model, folders = {}, {}
    for network, golden in (("generator", "electra_generator"), ("main", "electra_discriminator")):
        folders[network] = folder = hugging_face(shared / "golden/hf" / golden, tmp_path / golden)
        config = json.loads((folder / "config.json").read_text())
        model[network] = {**model_of("electra", config), "init_from": {"weights": str(folder)}}
    task = text_task(corpus, "mlm", "rtd")
    task["objectives"][0]["network"] = "generator"
    recipe = recipe_file(tmp_path / "r.yaml", model, task, tokenizer=str(tokenizer(tmp_path / "tokenizer.json")))
    run = pretrain(load_recipe(str(recipe)), tmp_path / "run")
    for network, folder in folders.items():
        export(run, tmp_path / network, "electra", network=network)
        written = load_file(tmp_path / network / "model.safetensors")
        golden = load_file(shared / "golden/hf" / folder.name / "weights.safetensors")
        equal(written, golden)
        assert written.keys() == golden.keys()
        same_states(folder, tmp_path / network)


@pytest.fixture(scope="module")
def electra(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the `run` of a tiny ELECTRA, its `tokenizer.json`, and as folders its `generator` and `main`."""
    folder = tmp_path_factory.mktemp("electra")
    changes = [
        f"tokenizer={tokenizer(folder / 'tokenizer.json')}",
        f"tasks.text.corpora=[{texts(folder / 'texts')}]",
        "train.max_steps=2",
        "train.lr_schedule=constant",
    ]
    run = pretrain(load_recipe("electra-tiny", changes), folder / "run")
    for network in ("generator", "main"):
        export(run, folder / network, "electra", network=network)
    return folder


def test_a_trained_electra_goes_out_and_on(electra: Path, tmp_path: Path, corpus: Path) -> None:
    """Networks that share their tables: each is written with its head, and the discriminator starts a classifier."""
    transformers = importlib.import_module("transformers")
    run, words = electra / "run", electra / "tokenizer.json"
    loaded = load(run)
    ids = torch.arange(5, 15)
    fields = {"input_ids": ids, "position_ids": torch.arange(10), "token_type_ids": 0 * ids}
    batch = Batch({"text": Stream(fields, torch.tensor([0, 10]), [10])})
    for network, name, kind in (("generator", "mlm", "ElectraForMaskedLM"), ("main", "rtd", "ElectraForPreTraining")):
        model = getattr(transformers, kind).from_pretrained(electra / network).eval()
        head: Any = loaded.model.heads[name]
        with torch.no_grad():
            states = loaded.model.network(network)(batch)["text"]
            given = (loaded.model.network(network), states) if name == "mlm" else (states,)
            torch.testing.assert_close(head.logits(*given), model(ids[None]).logits[0], atol=1e-5, rtol=1e-5)

    spec = load_recipe("electra-tiny", [f"tokenizer={words}"]).networks["main"]
    model = {"streams": spec.streams, "layers": spec.layers, "init_from": {"weights": str(run), "network": "main"}}
    next_run = recipe_file(tmp_path / "next.yaml", model, text_task(corpus, "mlm"), tokenizer=str(words))
    started = load(pretrain(load_recipe(str(next_run)), tmp_path / "next")).model.network("main").state_dict()
    equal(started, loaded.model.network("main").state_dict())


@pytest.mark.parametrize("start", ["run", "main"])
def test_an_electra_is_fine_tuned_as_its_discriminator(electra: Path, tmp_path: Path, start: str) -> None:
    """From the run of both networks where none is named, and from the library's folder of one."""
    reviews = prepare(tmp_path, "reviews", [{"text": text, "labels": {"far": i % 2}} for i, text in enumerate(WORDS)])
    changes, out = ["train.num_workers=0", "train.lr=1e-30"], tmp_path / "tuned"
    tuning = ClassifyTuning(run=electra / start, corpus=reviews, epochs=1.0, output=out, overrides=changes)
    tuned, trained = load(fine_tune(Classification(), tuning)), load(electra / "run")
    assert list(tuned.recipe.networks) == ["main"]
    body, whole = tuned.model.network().state_dict(), trained.model.network("main").state_dict()
    equal({name: tensor for name, tensor in body.items() if name in whole}, whole)
    scored = evaluate(Classification(), ClassifyScoring(run=out, corpus=reviews))
    assert scored.counts["texts"] == len(WORDS)


@torch.no_grad()
def same_states(folder: Path, exported: Path) -> None:
    """Both folders, read by their library, give the same states."""
    auto = importlib.import_module("transformers").AutoModel
    ids = torch.arange(5, 17)[None]
    given: dict[str, Any] = {"input_ids": ids}
    models = [auto.from_pretrained(place).eval() for place in (folder, exported)]
    if models[0].config.model_type == "t5":
        given["decoder_input_ids"] = ids
    states = [model(**given).last_hidden_state for model in models]
    torch.testing.assert_close(*states, atol=1e-5, rtol=1e-5)
