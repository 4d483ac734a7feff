"""The layer `vision.med`, compared with Hugging Face's BLIP of random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import BlipConfig, BlipForConditionalGeneration, BlipForImageTextRetrieval

from tests.contracts.cases import LayerCase
from vision.models.layers.med import MedLayer
from workbench.core.errors import WorkbenchError
from workbench.models.network import Network
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Batch, collate
from workbench.sequences.sequence import Sequence

CASES = {
    "": LayerCase({"stream": "text", "to": "image", "num_heads": 2}),
    "two": LayerCase({"stream": "image", "written": "text", "to": "entity", "num_heads": 2}),
    "alone": LayerCase({"stream": "image", "alone": "text", "to": "entity", "num_heads": 2}),
}
WIDTH, IMAGE, PATCH, GRID, LAYERS, WORDS = 32, 24, 4, 2, 2, 30
TEXTS = ("text", "alone", "written")
CLOSE: dict[str, Any] = {"atol": 1e-5, "rtol": 1e-5}


def theirs(kind: type[Any]) -> Any:
    text = {"vocab_size": WORDS, "hidden_size": WIDTH, "encoder_hidden_size": IMAGE, "num_hidden_layers": LAYERS,
            "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 16, "bos_token_id": 1,
            "eos_token_id": 2, "sep_token_id": 2, "pad_token_id": 0}  # fmt: skip
    vision = {"hidden_size": IMAGE, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "intermediate_size": 48,
              "image_size": GRID * PATCH, "patch_size": PATCH}  # fmt: skip
    torch.manual_seed(0)
    model = kind(BlipConfig(text_config=text, vision_config=vision, image_text_hidden_size=8)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model


def ours() -> Network:
    """The stack of the recipe `blip`."""
    text = {"embedding": "token", "hidden_size": WIDTH, "vocab_size": WORDS, "max_positions": 16, "token_types": 0}
    image = {"embedding": "vision.patches", "hidden_size": IMAGE, "grid": GRID, "patch": PATCH, "type_vector": False,
             "mask_vector": False}  # fmt: skip
    layers: list[dict[str, Any]] = [
        {"layer": "self", "stream": "image", "num_heads": 4, "intermediate_size": 48, "norm_place": "pre",
         "norm_eps": 1e-5, "repeat": LAYERS},
        {"layer": "norm", "stream": "image", "norm_eps": 1e-5},
        {"layer": "vision.med", "stream": "text", "alone": "alone", "written": "written", "to": "image",
         "num_heads": 4, "intermediate_size": 64, "repeat": LAYERS},
    ]  # fmt: skip
    return Network(NetworkSpec({**dict.fromkeys(TEXTS, text), "image": image}, layers)).eval()


def image_weights(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The image encoder's, under our names."""
    tower = "vision_model"
    own: dict[str, Tensor] = {}
    positions = state[f"{tower}.embeddings.position_embedding"][0]
    own["embeddings.image.whole"] = state[f"{tower}.embeddings.class_embedding"].flatten() + positions[0]
    own["embeddings.image.positions.tables.0.weight"] = positions[1:]
    own["embeddings.image.project.weight"] = state[f"{tower}.embeddings.patch_embedding.weight"].flatten(1)
    own["embeddings.image.project.bias"] = state[f"{tower}.embeddings.patch_embedding.bias"]
    maps = {"self_attn.qkv": "attention.attention.qkv", "self_attn.projection": "attention.attention.output",
            "layer_norm1": "attention.residual.norm", "layer_norm2": "feed_forward.residual.norm",
            "mlp.fc1": "feed_forward.network.inner", "mlp.fc2": "feed_forward.network.outer"}  # fmt: skip
    for kind in ("weight", "bias"):
        own[f"layers.{LAYERS}.norm.{kind}"] = state[f"{tower}.post_layernorm.{kind}"]
        for number in range(LAYERS):
            for there, here in maps.items():
                found = state[f"{tower}.encoder.layers.{number}.{there}.{kind}"]
                own[f"layers.{number}.{here}.{kind}"] = found
    return own


def text_weights(state: dict[str, Tensor], tower: str, attention: str, streams: tuple[str, ...]) -> dict[str, Tensor]:
    """A tower's, under our names; `attention` is the self-attention that it becomes."""
    own: dict[str, Tensor] = {}

    def put(target: str, *sources: str) -> None:
        for kind in ("weight", "bias"):
            own[f"{target}.{kind}"] = torch.cat([state[f"{tower}.{source}.{kind}"] for source in sources])

    for stream in streams:
        own[f"embeddings.{stream}.token.weight"] = state[f"{tower}.embeddings.word_embeddings.weight"]
        own[f"embeddings.{stream}.position.weight"] = state[f"{tower}.embeddings.position_embeddings.weight"]
        put(f"embeddings.{stream}.norm", "embeddings.LayerNorm")
    for number in range(LAYERS):
        theirs, layer = f"encoder.layer.{number}", f"layers.{LAYERS + 1 + number}"
        for source, target in (("attention", attention), ("crossattention", "cross_attention")):
            read = [f"{theirs}.{source}.self.{name}" for name in ("query", "key", "value")]
            if target == "cross_attention":
                put(f"{layer}.{target}.attention.query", read[0])
                put(f"{layer}.{target}.attention.key_value", *read[1:])
            else:
                put(f"{layer}.{target}.attention.qkv", *read)
            put(f"{layer}.{target}.attention.output", f"{theirs}.{source}.output.dense")
            put(f"{layer}.{target}.residual.norm", f"{theirs}.{source}.output.LayerNorm")
        put(f"{layer}.feed_forward.network.inner", f"{theirs}.intermediate.dense")
        put(f"{layer}.feed_forward.network.outer", f"{theirs}.output.dense")
        put(f"{layer}.feed_forward.residual.norm", f"{theirs}.output.LayerNorm")
    return own


def filled(own: dict[str, Tensor]) -> Network:
    network = ours()
    found = network.load_state_dict(own, strict=False)
    assert not found.unexpected_keys
    return network


def read() -> tuple[Batch, Tensor]:
    """Two captions of different lengths as all three streams, with their images; the images as the library has them."""
    rng = np.random.default_rng(0)
    side = np.arange(GRID) / GRID
    cells = [[x, y, x + 1 / GRID, y + 1 / GRID] for y in side for x in side]
    boxes = np.concatenate([[[0, 0, 1, 1]], cells]).astype(np.float32)
    sequences, pixels = [], []
    for number, length in enumerate((5, 3)):
        ids = rng.integers(3, WORDS, length)
        text = {"input_ids": ids, "position_ids": np.arange(length)}
        patches = rng.integers(0, 256, (len(boxes), 3 * PATCH * PATCH)).astype(np.uint8)
        streams = {"text": text, "alone": text, "written": {**text, "rank": np.arange(1, length + 1)}}
        sequences.append(Sequence({**streams, "image": {"patches": patches, "boxes": boxes}}, (number,)))
        cut = torch.from_numpy(patches[1:].astype(np.float32) / 127.5 - 1).unflatten(1, (3, PATCH, PATCH))
        grid = cut.unflatten(0, (GRID, GRID)).permute(2, 0, 3, 1, 4)
        pixels.append(grid.reshape(3, GRID * PATCH, GRID * PATCH))
    return collate(sequences), torch.stack(pixels)


def rows_of(batch: Batch, states: dict[str, Tensor], stream: str, number: int) -> Tensor:
    return states[stream][batch.streams[stream].rows_of([number])]


@torch.no_grad()
def test_a_text_alone_and_with_its_image_are_those_of_hugging_face() -> None:
    model = theirs(BlipForImageTextRetrieval)
    state = model.state_dict()
    own = image_weights(state) | text_weights(state, "text_encoder", "self_attention", ("text", "alone"))
    network = filled(own)
    batch, pixels = read()
    states = network(batch)
    for number in range(2):
        ids = rows_of(batch, {"text": batch.streams["text"].fields["input_ids"]}, "text", number)[None]
        given = {"input_ids": ids, "pixel_values": pixels[number : number + 1]}
        for stream, matched in (("text", True), ("alone", False)):
            wanted = model(**given, use_itm_head=matched)
            torch.testing.assert_close(rows_of(batch, states, stream, number), wanted.question_embeds[0], **CLOSE)
            torch.testing.assert_close(rows_of(batch, states, "image", number), wanted.last_hidden_state[0], **CLOSE)


@torch.no_grad()
def test_what_a_text_is_written_from_is_that_of_hugging_face() -> None:
    model = theirs(BlipForConditionalGeneration)
    state = model.state_dict()
    own = image_weights(state) | text_weights(state, "text_decoder.bert", "written_attention", ("written",))
    network = filled(own)
    batch, pixels = read()
    states = network(batch)
    for number in range(2):
        ids = rows_of(batch, {"written": batch.streams["written"].fields["input_ids"]}, "written", number)[None]
        wanted = model(pixels[number : number + 1], ids).logits[0]
        found = model.text_decoder.cls(rows_of(batch, states, "written", number))
        torch.testing.assert_close(found, wanted, **CLOSE)


def test_streams_of_two_widths_are_refused() -> None:
    with pytest.raises(WorkbenchError, match="have one hidden size"):
        MedLayer("text", "image", {"text": 4, "alone": 6, "image": 4}, 2, alone="alone")


@pytest.mark.parametrize("streams", [{"alone": "text"}, {"to": "written"}])
def test_two_streams_that_are_one_are_refused(streams: dict[str, str]) -> None:
    given = {"stream": "text", "to": "image", "alone": "alone", "written": "written", **streams}
    with pytest.raises(WorkbenchError, match="are different streams"):
        MedLayer(**given, sizes=dict.fromkeys(("text", "alone", "written", "image"), 8), num_heads=2)
