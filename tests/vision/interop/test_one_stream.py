"""The text encoder of a model with two encoders goes out by itself, as a BERT or an ALBERT with the same states."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModelForMaskedLM

import workbench
from tests.interop.worlds import WORDS, photographs, recipe_file, tokenizer
from workbench.cli.export import export
from workbench.core.errors import WorkbenchError
from workbench.interop.checkpoint_writer import exported_weights
from workbench.interop.sentence_modules import vector_layers
from workbench.models.network import Network
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import NetworkSpec
from workbench.runs.loaded_run import load
from workbench.sequences.batch import Batch, Stream
from workbench.training.pretrain import pretrain

TEXT = {"embedding": "token", "hidden_size": 32, "max_positions": 32, "dropout": 0.0}
IMAGE = {"embedding": "vision.regions", "hidden_size": 16, "feature_size": 12}
BLOCK = {"layer": "self", "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}


def self_layer(stream: str, **more: Any) -> dict[str, Any]:
    return {**BLOCK, "stream": stream, **more}


def recipe(folder: Path, family: str, photograph: bytes) -> Path:
    """Image layers before, between and behind the text's, which are one layer twice in an ALBERT."""
    both: dict[str, Any] = {"group": [self_layer("image"), self_layer("text")], "repeat": 2}
    text, more = (TEXT, [self_layer("text")]) if family == "bert" else ({**TEXT, "embedding_size": 8}, [])
    both |= {} if family == "bert" else {"share": "all"}
    layers = [self_layer("image"), both, {"layer": "tap", "name": "apart"}, *more, self_layer("image")]
    model = {"streams": {"image": IMAGE, "text": text}, "layers": layers, "poolers": ["image", "text"]}
    task = {
        "corpora": [str(photographs(folder / "photographs", 12, photograph))],
        "sequence": {
            "builder": "image_caption",
            "max_length": 16,
            "image_processor": {"image_processor": "vision.regions", "backbone": "made-up"},
        },
        "objectives": [{"objective": "mlm"}, {"objective": "vision.mrfr"}],
    }
    return recipe_file(folder / "recipe.yaml", model, task, tokenizer=str(tokenizer(folder / "tokenizer.json")))


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_the_text_of_two_encoders_is_a_network_by_itself(
    family: str, tmp_path: Path, photo: Callable[[int], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    run = pretrain(load_recipe(str(recipe(tmp_path, family, photo(0)))), tmp_path / "run")
    with pytest.raises(WorkbenchError, match=f"the family {family}"):
        export(run, tmp_path / "out", family)
    export(run, tmp_path / "out", family, stream="text")
    assert f"left out, as {family} has no form for it: head mrfr" in " ".join(capsys.readouterr().out.split())
    loaded = load(run)
    network, head = loaded.model.network(), loaded.model.heads["mlm"]
    theirs = AutoModelForMaskedLM.from_pretrained(tmp_path / "out").eval()
    ids = torch.arange(5, 16)
    fields = {"input_ids": ids, "token_type_ids": torch.zeros_like(ids), "position_ids": torch.arange(11)}
    with torch.inference_mode():
        rows = network(Batch({"text": Stream(fields, torch.tensor([0, 11]), [11])}))["text"]
        wanted = theirs(ids[None], output_hidden_states=True)
        torch.testing.assert_close(rows, wanted.hidden_states[-1][0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(head.logits(network, rows), wanted.logits[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rows", ["first", "mean"])
def test_sentence_transformers_has_the_vectors_of_the_common_space(
    rows: str, tmp_path: Path, photo: Callable[[int], bytes]
) -> None:
    space = {"objective": "vision.itc", "size": 6, "norm": rows == "mean", "pool_text": rows}
    file = recipe(tmp_path, "bert", photo(0))
    run = pretrain(load_recipe(str(file), [f"tasks.it.objectives={json.dumps([space])}"]), tmp_path / "run")
    with pytest.raises(WorkbenchError, match="reads image, text, and the library texts alone; pass --stream text"):
        vector_layers(torch.nn.ModuleDict(), ["image", "text"], None, False, torch.nn.ModuleDict())
    export(run, tmp_path / "out", "bert", stream="text", also=["sentence-transformers"])
    texts = [" ".join(WORDS[:4]), WORDS[5]]
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(texts)
    np.testing.assert_allclose(theirs, workbench.load(run).encode(texts), atol=1e-6)
    assert theirs.shape == (2, 6)


def test_a_stream_that_reads_another_one_is_no_network_by_itself() -> None:
    cross = {**BLOCK, "layer": "cross", "stream": "text", "to": "image"}
    spec = NetworkSpec({"text": TEXT, "image": IMAGE}, [self_layer("text"), self_layer("image"), cross])
    network = Network(spec, vocab_size=30)
    with pytest.raises(WorkbenchError, match=r"'text' is no network by itself: layer 2 \(CrossLayer\) reads image"):
        exported_weights("bert", network, spec, torch.nn.ModuleDict(), {}, "text", vocab_size=30)
    with pytest.raises(WorkbenchError, match="video"):
        exported_weights("bert", network, spec, torch.nn.ModuleDict(), {}, "video", vocab_size=30)
