"""The layer `vision.visual_elements`, and VL-BERT as a whole against the numbers of its released code in VOLTA."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from tests.contracts.cases import LayerCase
from vision.models.layers.visual_elements import VisualElementsLayer
from vision.objectives.mrc import MrcHead, classified
from workbench.core.errors import WorkbenchError
from workbench.interop.checkpoint_files import find_files
from workbench.interop.checkpoint_reader import read_checkpoint_folder
from workbench.interop.stream_weights import stream_names
from workbench.models.context import Context
from workbench.models.initialisation import initialise
from workbench.models.network import Network
from workbench.models.networks import build_networks
from workbench.objectives.mlm import MlmHead
from workbench.recipe.reading import load_recipe
from workbench.recipe.trees import recipe_from_dict
from workbench.sequences.batch import Batch, Stream

CASE = LayerCase(excused={"attention": "it has none"})
CLOSE = {"atol": 1e-5, "rtol": 0.0}


def layer(**options: Any) -> VisualElementsLayer:
    torch.manual_seed(0)
    return VisualElementsLayer({"text": 8, "image": 8}, **options).eval()


def two() -> tuple[Batch, dict[str, Tensor]]:
    """A text with an image of two rows, and one without."""
    text = Stream({}, torch.tensor([0, 2, 5]), [2, 3])
    image = Stream({}, torch.tensor([0, 2, 2]), [2, 0])
    return Batch({"text": text, "image": image}), {"text": torch.randn(5, 8), "image": torch.randn(2, 8)}


def test_words_have_the_feature_of_the_last_row_of_their_image() -> None:
    made, (batch, hidden) = layer(texts_alone=True), two()
    found = made(hidden, Context(batch))["text"]
    for row, visual in enumerate([hidden["image"][1]] * 2 + [made.alone] * 3):
        torch.testing.assert_close(found[row], made.norm(hidden["text"][row] + made.norm_text(visual)))


def test_at_first_words_are_what_they_are_without_an_image() -> None:
    """As in the released code, so that a text's weights start from what they know."""
    made, (batch, hidden) = layer(texts_alone=True), two()
    initialise(made, 0.02)
    found = made(hidden, Context(batch))
    torch.testing.assert_close(found["text"], made.norm(hidden["text"]))
    made.norm_text.weight.sum().backward()
    found["text"][:, 0].sum().backward()
    assert made.norm_text.weight.grad is not None
    assert made.norm_text.weight.grad[0] != 1, "they are learned"


def test_the_norm_of_the_words_embeddings_is_that_of_the_text_it_starts_from() -> None:
    network = load_recipe("vl-bert-tiny").networks["main"]
    own = [
        "embeddings.text.token.weight",
        "layers.0.norm.weight",
        "layers.0.norm_text.weight",
        "layers.0.position.weight",
    ]
    plain = replace(network, streams={"text": {"embedding": "token"}}, layers=network.layers[1:])
    theirs = ["embeddings.text.token.weight", "embeddings.text.norm.weight"]
    assert stream_names(network, own, "text") == {"embedding.token.weight": own[0], "embedding.norm.weight": own[1]}
    assert set(stream_names(plain, theirs, "text")) == {"embedding.token.weight", "embedding.norm.weight"}


def test_a_text_alone_adds_nothing_without_a_vector_for_it() -> None:
    made, (batch, hidden) = layer(), two()
    torch.testing.assert_close(made(hidden, Context(batch))["text"][2:], made.norm(hidden["text"][2:]))


def test_the_operations_of_texts_alone_can_be_counted() -> None:
    """Every run counts its operations before the first step, by hooks on what modules are given."""
    made, (batch, hidden) = layer(texts_alone=True), two()
    with FlopCounterMode(display=False):
        loss = made(hidden, Context(batch))["text"].square().sum()
        [gradient] = torch.autograd.grad(loss, [made.alone])
    assert gradient.abs().sum() > 0


def test_a_position_beyond_the_table_is_named() -> None:
    batch, hidden = two()
    reported = "an image behind its text has position 3, but the network has max_positions = 3"
    with pytest.raises(WorkbenchError, match=reported):
        layer(max_positions=3)(hidden, Context(batch))


def test_regions_stand_behind_the_text_that_is_next_to_them() -> None:
    """Whichever it is: an image is paired with many texts."""
    made, (batch, hidden) = layer(max_positions=9), two()
    hidden = {**hidden, "image": hidden["image"][:1].expand(2, 8)}
    plain = layer()
    plain.load_state_dict({n: t for n, t in made.state_dict().items() if not n.startswith("position.")})
    for length in (0, 2, 5):
        text = Stream({}, torch.tensor([0, length, length]), [length, 0])
        alongside = Batch({"text": text, "image": batch.streams["image"]})
        positions = made.position(torch.tensor([length, length + 1]))
        expected = plain._regions(hidden["image"], Context(alongside)) + positions
        torch.testing.assert_close(made._regions(hidden["image"], Context(alongside)), expected)
    alone = made._regions(hidden["image"], Context(Batch({"image": batch.streams["image"]})))
    torch.testing.assert_close(alone, plain._regions(hidden["image"], Context(batch)) + made.position(torch.arange(2)))


@pytest.fixture
def golden(shared: Path) -> Path:
    """The original settings; under the controlled ones words get the feature of what may be a padded row."""
    return shared / "golden" / "volta" / "original_vl-bert"


@torch.no_grad()
def test_states_and_logits_are_those_of_the_release(golden: Path, jagged: Callable[..., Batch]) -> None:
    config = json.loads((golden / "config.json").read_text())
    inputs, outputs = load_file(golden / "inputs.safetensors"), load_file(golden / "outputs.safetensors")
    weights = load_file(golden / "weights.safetensors")
    network = vl_bert(config)
    network.load_state_dict(named(weights, config))
    masks = {"text": inputs["attention_mask"].bool(), "image": inputs["image_attention_mask"].bool()}
    batch = given(inputs, masks, jagged)
    context = Context(batch, keep_hidden=True)
    states = network(batch, context)
    for number in range(1 + depth(config)):
        for stream, mask in masks.items():
            expected = outputs[f"{stream}_states.{2 * number}"][mask]
            torch.testing.assert_close(context.hidden[number + 1][stream], expected, **CLOSE)
    head = MlmHead(network)
    head.load_state_dict(mlm_head(weights))
    torch.testing.assert_close(head.logits(network, states["text"]), outputs["mlm_logits"][masks["text"]], **CLOSE)
    for target in config["visual_target_weights"]:
        check_classes(target, weights, inputs, outputs, states["image"], masks["image"])


def test_the_family_of_volta_reads_the_same(golden: Path) -> None:
    """Its table of names against the one here, and the head of regions without a norm."""
    files = find_files(golden)
    assert files is not None
    read, weights = read_checkpoint_folder(files), load_file(golden / "weights.safetensors")
    config = json.loads((golden / "config.json").read_text())
    assert (read.unused, read.missing) == ([], [])
    body = {name: tensor for name, tensor in read.tensors.items() if name.startswith(("embeddings.", "layers."))}
    for name, tensor in named(weights, config).items():
        assert torch.equal(body.pop(name), tensor), name
    assert not body
    assert vl_bert(config).state_dict().keys() == {n for n in read.tensors if n.startswith(("embeddings.", "layers."))}
    (target,) = config["visual_target_weights"]
    assert torch.equal(read.tensors["mrc.output.weight"], weights[f"cls.imagePredictions.decoder_dict.{target}.weight"])
    assert read.heads["mrc"] == {"objective": "vision.mrc", "norm": False}


def depth(config: dict[str, Any]) -> int:
    """Layers: each has a sublayer of attention and one of its feed-forward network."""
    return len(config["tt_attn_sublayers"])


def check_classes(
    target: str,
    weights: dict[str, Tensor],
    inputs: dict[str, Tensor],
    outputs: dict[str, Tensor],
    rows: Tensor,
    mask: Tensor,
) -> None:
    """The head without a norm, and its loss at the regions that are labelled; the last row of each is the whole."""
    theirs, size = "cls.imagePredictions", rows.shape[1]
    head = MrcHead(size, len(weights[f"{theirs}.decoder_dict.{target}.bias"]), norm=False)
    for ours, name in (("dense", "transform.dense"), ("output", f"decoder_dict.{target}")):
        values = {part: weights[f"{theirs}.{name}.{part}"] for part in ("weight", "bias")}
        head.get_submodule(ours).load_state_dict(values)
    logits = head.logits(rows)
    torch.testing.assert_close(logits, outputs[f"region_logits.{target}"][mask], **CLOSE)
    padded = torch.zeros_like(outputs[f"region_logits.{target}"])
    padded[mask] = logits
    wanted = inputs["image_label"] == 1
    found = classified(padded[:, :-1][wanted], {"labels": inputs["obj_labels"][wanted]}).loss / wanted.sum()
    torch.testing.assert_close(found, outputs[f"loss_region_part.{target}"], **CLOSE)


def vl_bert(config: dict[str, Any]) -> Network:
    """VL-BERT as its recipe has it, of the sizes of a configuration."""
    size, tall = config["hidden_size"], config["max_position_embeddings"]
    text = {"embedding": "token", "hidden_size": size, "max_positions": tall, "norm": None, "dropout": 0.0}
    image = {"embedding": "vision.visual_feature", "hidden_size": size, "feature_size": config["v_feature_size"]}
    block = {"num_heads": config["num_attention_heads"], "intermediate_size": config["intermediate_size"]}
    quiet = {"dropout": 0.0, "attention_dropout": 0.0}
    recipe = {
        "description": "VL-BERT",
        "model": {
            "streams": {"text": text, "image": {**image, "waves": config["v_coordinate_embeddings_dim"]}},
            "tie": {"layers.0.position": "text.position"},
            "layers": [
                {"layer": "vision.visual_elements", "max_positions": tall, "masked_element": True, "dropout": 0.0},
                *[{"layer": "joint", "streams": ["text", "image"], **block, **quiet}] * depth(config),
            ],
        },
        "tasks": {
            "t": {
                "corpora": ["x"],
                "sequence": {"builder": "document", "max_length": 8},
                "objectives": [{"objective": "mlm"}],
            }
        },
        "train": {"max_steps": 1, "global_batch_size": 1, "micro_batch_size": 1, "lr": 1e-3},
    }
    [network] = build_networks(recipe_from_dict(recipe), vocab_size=config["vocab_size"]).values()
    return network.eval()


def named(weights: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Tensor]:
    """The released code's weights under our names."""
    before = "bert.embeddings."
    waves = {p: weights[f"{before}obj_downsample.1.{p}"] for p in ("weight", "bias")}
    types, positions = weights[f"{before}token_type_embeddings.weight"], weights[f"{before}position_embeddings.weight"]
    found = {
        "embeddings.text.token.weight": weights[f"{before}word_embeddings.weight"],
        "embeddings.text.position.weight": positions,
        "embeddings.text.token_type.weight": types[:-1],
        "embeddings.image.mask": weights[f"{before}object_mask_visual_embedding.weight"][0],
        "layers.0.element": weights[f"{before}object_linguistic_embeddings.weight"][0],
        "layers.0.masked_element": weights[f"{before}object_mask_word_embedding.weight"][0],
        "layers.0.end": weights[f"{before}end_embedding.weight"][0],
        "layers.0.type_vector": types[-1],  # of regions
        "layers.0.position.weight": positions,
        **{f"embeddings.image.combine.{p}": value for p, value in waves.items()},
    }
    for p in ("weight", "bias"):
        for ours, theirs in (
            ("norm_text", "visual_ln_text"),
            ("norm_image", "visual_ln_object"),
            ("norm", "LayerNorm"),
        ):
            found[f"layers.0.{ours}.{p}"] = weights[f"{before}{theirs}.{p}"]
        for number in range(depth(config)):
            first, second = (f"bert.encoder.layer.{2 * number + n}" for n in range(2))
            ours = f"layers.{1 + number}"
            parts = [weights[f"{first}.attention_self.{n}.{p}"] for n in ("query", "key", "value")]
            found[f"{ours}.attention.attention.qkv.{p}"] = torch.cat(parts)
            found[f"{ours}.attention.attention.output.{p}"] = weights[f"{first}.attention_output.dense.{p}"]
            found[f"{ours}.attention.residual.norm.{p}"] = weights[f"{first}.attention_output.LayerNorm.{p}"]
            found[f"{ours}.feed_forward.network.inner.{p}"] = weights[f"{second}.intermediate.dense.{p}"]
            found[f"{ours}.feed_forward.network.outer.{p}"] = weights[f"{second}.output.dense.{p}"]
            found[f"{ours}.feed_forward.residual.norm.{p}"] = weights[f"{second}.output.LayerNorm.{p}"]
    return found


def mlm_head(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    names = {"dense": "transform.dense", "norm": "transform.LayerNorm"}
    found = {f"{o}.{p}": weights[f"cls.predictions.{t}.{p}"] for o, t in names.items() for p in ("weight", "bias")}
    return {**found, "bias": weights["cls.predictions.bias"]}


def given(inputs: dict[str, Tensor], masks: dict[str, Tensor], jagged: Callable[..., Batch]) -> Batch:
    """Their inputs; they take a region for hidden where all of its feature is zero."""
    ids, features = inputs["input_ids"], inputs["image_feat"]
    places = torch.arange(ids.shape[1]).expand_as(ids)
    image = {
        "features": features,
        "boxes": inputs["image_loc"][..., :4],
        "masked": (features == 0).all(-1),
    }
    text = {"input_ids": ids, "position_ids": places, "token_type_ids": inputs["token_type_ids"]}
    return jagged(text=(masks["text"], text), image=(masks["image"], image))
