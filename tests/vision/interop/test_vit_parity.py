"""ViT of Hugging Face and of timm: by `init_from` into the stream of patches, with the states of their libraries."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor

from tests.interop.worlds import photographs, recipe_file, tokenizer
from tests.vision.interop.test_clip_parity import GRID, PATCH, batch_of, pixels
from workbench.cli.export import export
from workbench.core.errors import WorkbenchError
from workbench.interop.checkpoint_files import find_files
from workbench.interop.checkpoint_reader import make_family, read_checkpoint_folder
from workbench.interop.checkpoint_writer import exported_weights, write_checkpoint_folder
from workbench.models.network import Network
from workbench.recipe.reading import load_recipe
from workbench.runs.loaded_run import load
from workbench.training.pretrain import pretrain

CLOSE = {"atol": 1e-5, "rtol": 0.0}
HEADS = 4
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": HEADS, "intermediate_size": 40}
TIMM = {"img_size": GRID * PATCH, "patch_size": PATCH, "embed_dim": 32, "depth": 2, "num_heads": HEADS}
TIMM["mlp_ratio"] = 1.25
Photo = Callable[[int], bytes]


def shaken(model: torch.nn.Module) -> Any:
    """With none of its weights at their usual start."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model.eval()


def hugging_face(folder: Path) -> Callable[[Tensor], Tensor]:
    model = shaken(transformers.ViTModel(transformers.ViTConfig(**SIZES, image_size=GRID * PATCH, patch_size=PATCH)))
    model.save_pretrained(folder)
    return lambda given: model(pixel_values=given).last_hidden_state


def of_timm(folder: Path) -> Callable[[Tensor], Tensor]:
    model = shaken(timm.create_model("vit_base_patch16_224", num_classes=5, **TIMM))
    folder.mkdir()
    save_file(model.state_dict(), folder / "model.safetensors")
    about = {"architecture": "vit_base_patch16_224", "model_args": {"num_heads": HEADS}}
    about["pretrained_cfg"] = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    (folder / "config.json").write_text(json.dumps(about))
    return model.forward_features


def recipe(folder: Path, photograph: bytes, weights: Path, **layer: Any) -> Path:
    """The image's stream of patches next to a text, from the weights, with what they lack (types, a masked patch)."""
    image = {"embedding": "vision.patches", "hidden_size": 32, "grid": GRID, "patch": PATCH, "type_vector": False}
    text = {"embedding": "token", "hidden_size": 32, "max_positions": 16}
    block = {"layer": "self", "num_heads": HEADS, "intermediate_size": 40, "norm_place": "pre", **layer}
    layers = [{**block, "stream": "image", "repeat": 2}, {"layer": "norm", "stream": "image", "norm_eps": 1e-12}]
    model = {
        "streams": {"text": text, "image": image},
        "layers": [*layers, {**block, "stream": "text"}],
        "init_from": {"weights": str(weights), "stream": "image"},
    }
    task = {
        "corpora": [str(photographs(folder / "photographs", 4, photograph))],
        "sequence": {
            "builder": "image_caption",
            "max_length": 16,
            "image_processor": {
                "image_processor": "vision.patches",
                "size": GRID * PATCH,
                "patch": PATCH,
                "class_row": True,
            },
        },
        "objectives": [{"objective": "vision.itc", "size": 8}],
    }
    words = tokenizer(folder / "tokenizer.json")
    return recipe_file(folder / "recipe.yaml", model, task, tokenizer=str(words))


@pytest.mark.parametrize(("made", "normalisation"), [(hugging_face, "half"), (of_timm, "imagenet")])
def test_a_stream_starts_from_its_weights(
    made: Callable[[Path], Callable[[Tensor], Tensor]], normalisation: str, tmp_path: Path, photo: Photo
) -> None:
    theirs = made(tmp_path / "theirs")
    place = recipe(tmp_path, photo(0), tmp_path / "theirs", norm_eps=1e-12 if made is hugging_face else 1e-6)
    changes = [f"model.streams.image.normalisation={normalisation}"]
    changes += ["model.layers.1.norm_eps=1e-6"] if made is of_timm else []
    loaded = load(pretrain(load_recipe(str(place), changes), tmp_path / "run"))
    batch = batch_of(loaded)
    given = pixels(batch.streams["image"].fields["patches"], batch.size, normalisation=normalisation)
    with torch.no_grad():
        states = loaded.model.network()(batch)["image"]
        torch.testing.assert_close(states, theirs(given).flatten(0, 1), **CLOSE)


@torch.no_grad()
def test_timm_makes_the_network_that_was_written(tmp_path: Path) -> None:
    theirs = of_timm(tmp_path / "theirs")
    read = read_checkpoint_folder(find_files(tmp_path / "theirs"))  # type: ignore[arg-type]
    network = Network(read.network).eval()
    network.load_state_dict(read.tensors)
    written = exported_weights("vision.timm_vit", network, read.network, torch.nn.ModuleDict(), {})
    write_checkpoint_folder(tmp_path / "out", written)
    again = timm.create_model(written.config["architecture"], **written.config["model_args"]).eval()
    again.load_state_dict(written.tensors)
    given = torch.randn(2, 3, GRID * PATCH, GRID * PATCH)
    torch.testing.assert_close(again.forward_features(given), theirs(given), **CLOSE)
    assert written.config["pretrained_cfg"]["mean"] == [0.485, 0.456, 0.406]


def test_an_image_encoder_goes_out_by_itself(tmp_path: Path, photo: Photo) -> None:
    """Of two encoders the image's, as a ViT with the same states."""
    hugging_face(tmp_path / "theirs")
    place = recipe(tmp_path, photo(0), tmp_path / "theirs", norm_eps=1e-12)
    run = pretrain(load_recipe(str(place), ["model.streams.image.mask_vector=false"]), tmp_path / "run")
    export(run, tmp_path / "out", "vision.vit", stream="image")
    loaded = load(run)
    batch = batch_of(loaded)
    model = transformers.ViTModel.from_pretrained(tmp_path / "out").eval()
    given = pixels(batch.streams["image"].fields["patches"], batch.size, normalisation="half")
    with torch.no_grad():
        states = loaded.model.network()(batch)["image"]
        torch.testing.assert_close(states, model(pixel_values=given).last_hidden_state.flatten(0, 1), **CLOSE)


@pytest.mark.parametrize(
    ("config", "more", "reported"),
    [
        ({}, {}, "name one of timm's"),
        ({"architecture": "vit_of_mine"}, {}, "'vit_of_mine'.*name one of timm's"),
        ({"model_args": {"num_heads": 2}}, {"blocks.0.ls1.gamma": torch.ones(32)}, "has blocks.0.ls1.gamma; allowed"),
        ({"model_args": {"num_heads": 2}, "pretrained_cfg": {"mean": [0, 0, 0], "std": [1, 1, 1]}}, {}, "mean, std"),
    ],
)
def test_what_cannot_be_said_is_refused(
    config: dict[str, Any], more: dict[str, Tensor], reported: str, tmp_path: Path
) -> None:
    model = timm.create_model("vit_base_patch16_224", num_classes=0, **TIMM)
    save_file({**model.state_dict(), **more}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(WorkbenchError, match=reported):
        read_checkpoint_folder(find_files(tmp_path))  # type: ignore[arg-type]


def test_heads_are_those_of_the_architecture(tmp_path: Path) -> None:
    model = timm.create_model("test_vit", num_classes=0)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "test_vit"}))
    read = read_checkpoint_folder(find_files(tmp_path))  # type: ignore[arg-type]
    assert read.network.layers[0]["num_heads"] == model.blocks[0].attn.num_heads
    assert make_family(read.family).__doc__
