"""Hugging Face's texts as our networks: states and the logits of masked words are those of their library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.contracts import material
from workbench.components.building import build
from workbench.interop.checkpoint_reader import make_family
from workbench.interop.families.bart import Bart
from workbench.interop.family import FamilyConfig
from workbench.interop.rules import to_ours
from workbench.models.network import Network
from workbench.objectives._pair import PairHead
from workbench.sequences.batch import Batch, Stream

CLOSE = {"atol": 1e-5, "rtol": 0.0}
PAIRS = {"nsp": ("seq_relationship_logits", "next_sentence_label"), "sop": ("sop_logits", "sentence_order_label")}


def batch_of(inputs: dict[str, Tensor]) -> tuple[Batch, Tensor]:
    """The inputs without their padding, and where they are in the padded grid."""
    mask = inputs["attention_mask"].bool()
    lengths = mask.sum(1).tolist()
    types = inputs.get("token_type_ids", torch.zeros_like(inputs["input_ids"]))
    places = torch.arange(mask.shape[1]).expand(mask.shape)
    fields = {"input_ids": inputs["input_ids"][mask], "token_type_ids": types[mask], "position_ids": places[mask]}
    return Batch({"text": Stream(fields, torch.tensor([0, *lengths]).cumsum(0), lengths)}), mask


@torch.no_grad()
def test_bart_s_encoder_and_decoder(shared: Path) -> None:
    folder = shared / "golden/hf/bart"
    config = FamilyConfig(json.loads((folder / "config.json").read_text())["config"])
    weights = to_ours(load_file(folder / "weights.safetensors"), Bart().rules(config)).tensors
    inputs, outputs = load_file(folder / "inputs.safetensors"), load_file(folder / "outputs.safetensors")
    spec = Bart().network(config)
    network = Network(spec).eval()
    network.embeddings["target"].token = network.embeddings["text"].token
    network.load_state_dict({**weights, "embeddings.target.token.weight": weights["embeddings.text.token.weight"]})
    batch, mask = batch_of(inputs)
    kept = inputs["labels"] != -100
    lengths = kept.sum(1).tolist()
    start = torch.full((len(kept), 1), config["decoder_start_token_id"])
    given = torch.cat([start, inputs["labels"][:, :-1]], 1)[kept]
    places = torch.cat([torch.arange(n) for n in lengths])
    fields = {"input_ids": given, "position_ids": places, "rank": places}
    target = Stream(fields, torch.tensor([0, *lengths]).cumsum(0), lengths)
    states = network(Batch({**batch.streams, "target": target}))
    torch.testing.assert_close(states["text"], outputs["encoder_last"][mask], **CLOSE)
    torch.testing.assert_close(states["target"], outputs[f"decoder.{config['decoder_layers']}"][kept], **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("name", ["bert", "roberta", "albert", "mpnet"])
def test_states_and_logits(name: str, shared: Path) -> None:
    folder = shared / "golden/hf" / name
    checkpoint_family = make_family(name)
    config = FamilyConfig(json.loads((folder / "config.json").read_text())["config"])
    weights = to_ours(load_file(folder / "weights.safetensors"), checkpoint_family.rules(config)).tensors
    inputs, outputs = load_file(folder / "inputs.safetensors"), load_file(folder / "outputs.safetensors")
    network = Network(checkpoint_family.network(config)).eval()
    missing = network.load_state_dict({n: t for n, t in weights.items() if n in network.state_dict()}, strict=False)
    shared_layers = ("layers.1", "layers.2", "layers.3") if name in ("albert", "mpnet") else ()
    assert [n for n in missing.missing_keys if not n.startswith(("poolers", *shared_layers))] == []
    batch, mask = batch_of(inputs)
    states = network(batch)["text"]
    last = max(output for output in outputs if output.startswith("hidden."))
    torch.testing.assert_close(states, outputs[last][mask], **CLOSE)
    head = build("objective", checkpoint_family.heads(config)["mlm"], tokenizer=material.tokenizer()).head(network)
    head.load_state_dict({n.removeprefix("mlm."): t for n, t in weights.items() if n.startswith("mlm.")})
    expected = outputs["prediction_logits"] if "prediction_logits" in outputs else outputs["logits"]
    logits, labels = head.logits(network, states), inputs["labels"][mask]
    torch.testing.assert_close(logits, expected[mask], **CLOSE)
    if "loss" not in outputs:
        return
    loss = head.loss(logits, labels).loss / (labels != -100).sum()
    for pair, (scores, label) in PAIRS.items():
        if label in inputs:
            classifier = PairHead(network)
            classifier.load_state_dict(
                {n.removeprefix(f"{pair}."): t for n, t in weights.items() if n.startswith(pair)}
            )
            logits = classifier.logits(network, network.pool({"text": states}, batch))
            torch.testing.assert_close(logits, outputs[scores], **CLOSE)
            loss = loss + classifier.loss(logits, inputs[label]).loss / len(logits)
    torch.testing.assert_close(loss, outputs["loss"], **CLOSE)
