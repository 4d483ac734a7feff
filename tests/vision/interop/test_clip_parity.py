"""CLIP both ways: its library's states, logits and loss, from its weights and its tokenizer by a recipe, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

import workbench
from tests.interop.worlds import model_of, photographs, recipe_file
from tests.text.test_clip_tokenizer import clip_tokenizer
from vision.images.transforms import NORMALISATIONS, standardise
from workbench.cli.export import export
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.scoring.passes import sample_pass
from workbench.model_api import create
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.reading import load_recipe
from workbench.runs.loaded_run import LoadedRun, load
from workbench.sequences.batch import Batch
from workbench.training.pretrain import pretrain

CLOSE = {"atol": 1e-5, "rtol": 0.0}
BLOCK = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
GRID, PATCH, LENGTH = 3, 8, 16


class World(NamedTuple):
    run: Path
    theirs: transformers.CLIPModel
    folder: Path


def hugging_face(folder: Path) -> transformers.CLIPModel:
    """A model with random weights, none of them at its usual start, and its tokenizer next to it."""
    clip_tokenizer(folder)
    words = json.loads((folder / "vocab.json").read_text("utf-8"))
    text = {**BLOCK, "vocab_size": len(words), "max_position_embeddings": LENGTH}
    text |= {"bos_token_id": len(words) - 2, "eos_token_id": len(words) - 1}
    vision = {**BLOCK, "num_hidden_layers": 3, "image_size": GRID * PATCH, "patch_size": PATCH}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=12)
    torch.manual_seed(0)
    model = transformers.CLIPModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, photo: Callable[[int], bytes]) -> World:
    folder = tmp_path_factory.mktemp("clip")
    theirs = hugging_face(folder / "theirs")
    config = json.loads((folder / "theirs" / "config.json").read_text())
    image = {"image_processor": "vision.patches", "size": GRID * PATCH, "patch": PATCH, "class_row": True}
    ends = {"begin": "bos", "end": "eos", "visibility": "causal"}
    task = {
        "corpora": [str(photographs(folder / "photographs", 4, photo(0)))],
        "sequence": {"builder": "image_caption", "max_length": LENGTH, "image_processor": image, **ends},
        "objectives": [
            {
                "objective": "vision.itc",
                "size": 12,
                "norm": True,
                "pool_text": "last",
                "pool_image": "first",
                "same_image": "negative",
            }
        ],
    }
    model = {**model_of("vision.clip", config), "init_from": str(folder / "theirs")}
    recipe = recipe_file(folder / "recipe.yaml", model, task, tokenizer=str(folder / "theirs"))
    return World(pretrain(load_recipe(str(recipe)), folder / "run"), theirs, folder)


def batch_of(loaded: LoadedRun) -> Batch:
    task = loaded.tasks["it"].evaluating()
    corpus = Corpus.open(next(iter(loaded.recipe.tasks["it"].corpora)))
    [samples] = sample_pass([corpus], size=8, unit=None)
    torch.manual_seed(1)
    batch = task.micro_batch([{**s, "draw": (i,)} for i, s in enumerate(samples)], (0,)).views["main"]
    patches = batch.streams["image"].fields["patches"]
    patches.copy_(torch.randint(0, 256, patches.shape, dtype=torch.uint8))  # all photographs of the corpus are one
    return batch


def inputs_of(batch: Batch) -> dict[str, Tensor]:
    """The batch as the library takes it: padded texts, pixels."""
    text, image = batch.streams["text"], batch.streams["image"]
    rows = [text.fields["input_ids"][a:b] for a, b in zip(text.offsets, text.offsets[1:], strict=False)]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=0)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    return {"input_ids": ids, "attention_mask": mask, "pixel_values": pixels(image.fields["patches"], batch.size)}


def pixels(patches: Tensor, images: int, whole: bool = True, normalisation: Any = "clip") -> Tensor:
    """Patches [rows, 3 * patch * patch] of square images, the class token's before each -> normalised pixels."""
    cells = patches.unflatten(0, (images, -1))[:, int(whole) :]
    grid = round(cells.shape[1] ** 0.5)
    squares = cells.unflatten(2, (3, PATCH, PATCH)).unflatten(1, (grid, grid))
    joined = squares.permute(0, 3, 1, 4, 2, 5).reshape(images, 3, grid * PATCH, grid * PATCH)
    mean, std = (torch.tensor(values) for values in NORMALISATIONS[normalisation])
    return standardise(joined, mean, std)


@torch.no_grad()
def test_states_logits_and_loss(world: World) -> None:
    loaded = load(world.run)
    batch, head = batch_of(loaded), loaded.model.heads["itc"]
    inputs = inputs_of(batch)
    wanted = world.theirs(**inputs, return_loss=True, output_hidden_states=True)
    states = loaded.model.network()(batch)
    mask = inputs["attention_mask"].bool()
    torch.testing.assert_close(states["text"], wanted.text_model_output.hidden_states[-1][mask], **CLOSE)
    last = wanted.vision_model_output.hidden_states[-1].flatten(0, 1)
    torch.testing.assert_close(states["image"], last, **CLOSE)
    embedded = head.embed(HeadInputs.of(loaded.model.network(), batch, batch.targets["itc"]))
    torch.testing.assert_close(embedded["text"], wanted.text_embeds, **CLOSE)
    torch.testing.assert_close(embedded["image"], wanted.image_embeds, **CLOSE)
    torch.testing.assert_close(head.scores(embedded["text"], embedded["image"], None), wanted.logits_per_text, **CLOSE)
    loss = head.loss(embedded, slice(None)).loss / batch.size
    torch.testing.assert_close(loss, wanted.loss, **CLOSE)


@torch.no_grad()
def test_it_goes_out_and_computes_the_same_there(world: World) -> None:
    export(world.run, world.folder / "out", "vision.clip")
    again = transformers.CLIPModel.from_pretrained(world.folder / "out").eval()
    inputs = inputs_of(batch_of(load(world.run)))
    one, other = (model(**inputs, return_loss=True) for model in (world.theirs, again))
    torch.testing.assert_close(other.logits_per_text, one.logits_per_text, **CLOSE)
    torch.testing.assert_close(other.loss, one.loss, **CLOSE)
    written, original = (load_file(world.folder / name / "model.safetensors") for name in ("out", "theirs"))
    assert written.keys() == original.keys()
    summed = {"vision_model.embeddings.class_embedding", "vision_model.embeddings.position_embedding.weight"}
    assert all(torch.equal(written[name], original[name]) for name in written.keys() - summed)
    texts = ["a photo of the cat", "dogs in 1984"]
    theirs = transformers.CLIPTokenizer.from_pretrained(str(world.folder / "theirs"))
    ours = transformers.AutoTokenizer.from_pretrained(world.folder / "out")
    assert theirs(texts)["input_ids"] == ours(texts)["input_ids"]


def test_a_head_that_pools_otherwise_is_refused(world: World, tmp_path: Path) -> None:
    changes = ["tasks.it.objectives.0.pool_text=mean", "model.init_from=[]"]
    run = pretrain(load_recipe(str(world.folder / "recipe.yaml"), changes), tmp_path / "run")
    with pytest.raises(Exception, match="pool_text = mean here, last there"):
        export(run, tmp_path / "out", "vision.clip")


def test_the_library_opens_images_too_and_its_cosines_are_ours(world: World, photo: Callable[[int], bytes]) -> None:
    """By `preprocessor_config.json`; `encode` returns the vectors whose products `similarity` is."""
    export(world.run, world.folder / "processed", "vision.clip")
    model = workbench.load(world.run)
    texts, images = ["a photo of the cat", "dogs in 1984"], [Image.open(BytesIO(photo(number))) for number in (0, 1, 2)]
    read = transformers.AutoProcessor.from_pretrained(world.folder / "processed")
    again = transformers.CLIPModel.from_pretrained(world.folder / "processed").eval()
    with torch.no_grad():
        found = again(**read(text=texts, images=images, return_tensors="pt", padding=True))
    theirs = (found.text_embeds @ found.image_embeds.T).numpy()
    ours = model.similarity(texts, images)
    np.testing.assert_allclose(ours, theirs, atol=2e-6)
    np.testing.assert_allclose(model.encode(texts) @ model.encode(images).T, ours, atol=1e-6)
    assert not np.allclose(model.encode(texts, pool="mean")[:, :12], model.encode(texts))
    recipe = load_recipe(str(world.folder / "recipe.yaml"))
    recipe.tasks["it"].objectives.append({**recipe.tasks["it"].objectives[0], "name": "other"})
    with pytest.raises(WorkbenchError, match="the objectives itc, other each have vectors of 'text'; name one"):
        create(recipe, None, None).encode("a dog")
