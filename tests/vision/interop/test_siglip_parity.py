"""SigLIP both ways: its library's vectors, logits and loss, from its weights by a recipe, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file

import workbench
from tests.interop.worlds import model_of, photographs, recipe_file, tokenizer
from tests.vision.interop.test_clip_parity import BLOCK, GRID, PATCH, batch_of, pixels
from workbench.cli.export import export
from workbench.interop.family import OWN
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.reading import load_recipe
from workbench.runs.loaded_run import load
from workbench.text.tokenizer import Tokenizer
from workbench.training.pretrain import pretrain

CLOSE = {"atol": 1e-5, "rtol": 0.0}
LENGTH, WORDS = 12, 60


def hugging_face(folder: Path) -> transformers.SiglipModel:
    """A model with random weights, none of them at its usual start."""
    text = {**BLOCK, "vocab_size": WORDS, "max_position_embeddings": LENGTH, "projection_size": 32}
    vision = {**BLOCK, "num_hidden_layers": 3, "image_size": GRID * PATCH, "patch_size": PATCH}
    torch.manual_seed(0)
    model = transformers.SiglipModel(transformers.SiglipConfig(text_config=text, vision_config=vision)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
        model.logit_scale.fill_(4.8)  # above CLIP's greatest, as of the published weights
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, photo: Callable[[int], bytes]) -> tuple[Path, Any, Path]:
    folder = tmp_path_factory.mktemp("siglip")
    theirs = hugging_face(folder / "theirs")
    words = tokenizer(folder / "tokenizer.json")
    assert Tokenizer.load(words).vocab_size <= WORDS
    config = json.loads((folder / "theirs" / "config.json").read_text())
    sequence = {
        "builder": "image_caption",
        "max_length": LENGTH,
        "begin": None,
        "image_processor": {"image_processor": "vision.patches", "size": GRID * PATCH, "patch": PATCH},
        "transforms": [
            {"transform": "fill", "length": LENGTH},
            {"transform": "queries", "stream": "pooled", "count": 1},
        ],
    }
    itc = {"objective": "vision.itc", "loss": "sigmoid", "size": 32, "projected": "text", "bias": True}
    itc |= {"pool_text": "last", "image": "pooled", "same_image": "negative"}
    task = {"corpora": [str(photographs(folder / "photographs", 4, photo(0)))], "sequence": sequence}
    model = {**model_of("vision.siglip", config), "init_from": str(folder / "theirs")}
    recipe = recipe_file(folder / "recipe.yaml", model, {**task, "objectives": [itc]}, tokenizer=str(words))
    return pretrain(load_recipe(str(recipe)), folder / "run"), theirs, folder


def asked(run: Path) -> tuple[Any, Any, dict[str, torch.Tensor]]:
    loaded = load(run)
    batch = batch_of(loaded)
    images = pixels(batch.streams["image"].fields["patches"], batch.size, whole=False, normalisation="half")
    text = batch.streams["text"].fields["input_ids"].unflatten(0, (batch.size, LENGTH))
    return loaded, batch, {"input_ids": text, "pixel_values": images}  # without a mask, so that the padding is read


@torch.no_grad()
def test_vectors_logits_and_loss(world: tuple[Path, Any, Path]) -> None:
    run, theirs, _ = world
    loaded, batch, given = asked(run)
    head = loaded.model.heads["itc"]
    wanted = theirs(**given, return_loss=True)
    embedded = head.embed(HeadInputs.of(loaded.model.network(), batch, batch.targets["itc"]))
    torch.testing.assert_close(embedded["text"], wanted.text_embeds, **CLOSE)
    torch.testing.assert_close(embedded["image"], wanted.image_embeds, **CLOSE)
    found = head.scores(embedded["text"], embedded["image"], None)
    torch.testing.assert_close(found, wanted.logits_per_text, atol=5e-5, rtol=1e-5)  # products of 1e-7, times 121
    loss = head.loss(embedded, slice(None)).loss / batch.size
    torch.testing.assert_close(loss, wanted.loss, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_it_goes_out_and_computes_the_same_there(world: tuple[Path, Any, Path]) -> None:
    run, theirs, folder = world
    export(run, folder / "out", "vision.siglip")
    again = transformers.SiglipModel.from_pretrained(folder / "out").eval()
    _, _, given = asked(run)
    one, other = (model(**given).logits_per_text for model in (theirs, again))
    torch.testing.assert_close(other, one, **CLOSE)
    written, original = (load_file(folder / name / "model.safetensors") for name in ("out", "theirs"))
    assert written.keys() == original.keys()
    assert all(torch.equal(written[name], original[name]) for name in written if "token_embedding" not in name)


@torch.no_grad()
def test_a_decoder_of_training_is_left_out(world: tuple[Path, Any, Path]) -> None:
    """SigLIP 2's decoder and the vector of its hidden patches."""
    _, _, folder = world
    model = workbench.create_model("siglip-2-tiny", tokenizer=folder / "tokenizer.json")
    out = model.export(folder / "second", "vision.siglip")
    left = json.loads((out / "config.json").read_text())[OWN]["left_out"]
    assert {"stream written, with its layers", "head captions"} <= {*left}
    again = transformers.SiglipModel.from_pretrained(out).eval()
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    given = transformers.SiglipImageProcessor.from_pretrained(out)(image, return_tensors="pt")
    found = torch.nn.functional.normalize(again.vision_model(**given).pooler_output, dim=-1)
    torch.testing.assert_close(
        found, torch.from_numpy(model.encode([image], "itc", stream="pooled")), atol=1e-4, rtol=1e-4
    )
