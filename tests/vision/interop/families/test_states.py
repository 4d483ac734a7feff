"""Hugging Face's LXMERT and VisualBERT as our networks: all outputs of their library."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F
from transformers import LxmertConfig

from vision.objectives.answers import Answers
from vision.objectives.itm import Itm
from vision.objectives.mrc import Mrc
from vision.objectives.mrfr import Mrfr
from workbench.interop.checkpoint_reader import make_family
from workbench.interop.family import FamilyConfig
from workbench.interop.rules import to_ours
from workbench.models.network import Network
from workbench.objectives.mlm import MlmHead
from workbench.pretraining.forward import ForwardPass, HeadInputs, ViewKey, read
from workbench.sequences.batch import Batch

CLOSE = {"atol": 1e-5, "rtol": 0.0}
Jagged = Callable[..., Batch]


def released(folder: Path, name: str) -> tuple[Network, dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
    """The network, the weights under our names, inputs and outputs."""
    checkpoint_family = make_family(f"vision.{name}")
    config = FamilyConfig(json.loads((folder / "config.json").read_text())["config"])
    weights = to_ours(load_file(folder / "weights.safetensors"), checkpoint_family.rules(config)).tensors
    spec = checkpoint_family.network(config)
    network = Network(spec).eval()
    for ours, other in spec.tie.items():
        stream, module = ours.split(".")
        setattr(network.embeddings[stream], module, network.embeddings.get_submodule(other))
    own = network.state_dict()
    missing, unexpected = network.load_state_dict({n: t for n, t in weights.items() if n in own}, strict=False)
    assert not unexpected
    assert all(n.startswith(("embeddings.image.norm", "layers.")) for n in missing), "what is tied or shared alone"
    return network, weights, load_file(folder / "inputs.safetensors"), load_file(folder / "outputs.safetensors")


def text_fields(inputs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    mask = inputs["attention_mask"].bool()
    places = torch.arange(mask.shape[1]).expand(mask.shape)
    return mask, {"position_ids": places, **{n: inputs[n] for n in ("input_ids", "token_type_ids")}}


def compare(found: dict[str, Tensor], outputs: dict[str, Tensor]) -> None:
    """All outputs of the library, and no others."""
    assert found.keys() == outputs.keys()
    for name, expected in outputs.items():
        torch.testing.assert_close(found[name], expected, **CLOSE, msg=lambda m, n=name: f"{n}: {m}")


def of_rows(there: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """The labelled rows among those that are there, and their labels."""
    labels = labels[there]
    return {"rows": (labels != -100).nonzero()[:, 0], "labels": labels[labels != -100]}


def head_of(weights: dict[str, Tensor], name: str, head: Any) -> Any:
    head.load_state_dict({n.partition(".")[2]: t for n, t in weights.items() if n.startswith(f"{name}.")})
    return head.eval()


@torch.no_grad()
def test_lxmert(shared: Path, jagged: Jagged) -> None:
    network, weights, inputs, outputs = released(shared / "golden/hf/lxmert", "lxmert")
    mask, words = text_fields(inputs)
    everything = torch.ones(inputs["visual_pos"].shape[:2], dtype=torch.bool)
    batch = jagged(
        text=(mask, words), image=(everything, {"features": inputs["visual_feats"], "boxes": inputs["visual_pos"]})
    )
    forward = ForwardPass({"main": network}, {"main": batch})
    states = forward.read(ViewKey("main", "main")).states
    losses: dict[str, Tensor] = {}

    def made(name: str, head: Any, **targets: Tensor) -> Any:
        output = head_of(weights, name, head)(HeadInputs(forward, ViewKey("main", "main"), targets, name))
        forward.outputs[name], losses[name] = output.outputs, output.loss
        return head

    mlm = made("mlm", MlmHead(network), **of_rows(mask, inputs["labels"]))
    itm = made("itm", Itm().head(network), labels=inputs["matched_label"])
    count = len(weights["answers.outer.bias"])
    scores = F.one_hot(inputs["ans"], count).float()
    asked = {"scores": scores, "labels": inputs["ans"], "asked": torch.ones(len(scores), dtype=torch.bool)}
    answers = made("answers", Answers([str(n) for n in range(count)], loss="drawn").head(network), **asked)
    rows = {"rows": torch.arange(everything.sum())}
    # its features count by a weight for each region; with those that are 0 or 1, the rows that are hidden
    hidden = {"rows": inputs["feat_weights"].flatten().nonzero()[:, 0]}
    mrfr = Mrfr(loss="smooth_l1", tied=False).head(network)
    made("mrfr", mrfr, **hidden, features=inputs["feat_targets"].flatten(0, 1)[hidden["rows"]])
    features = losses["mrfr"]
    made("mrfr", mrfr, **rows, features=inputs["feat_targets"].flatten(0, 1))  # the others read all regions
    classes = {}
    for name, key in (("objects", "obj"), ("attributes", "attr")):
        size = len(weights[f"{name}.output.bias"])
        targets = {"labels": inputs[f"{key}_labels"].flatten(), "weights": inputs[f"{key}_weights"].flatten()}
        classes[key] = made(name, Mrc(size, of="mrfr").head(network), **targets)
    normalizer = LxmertConfig().visual_loss_normalizer
    shape, transformed = everything.shape, forward.outputs["mrfr"]["hidden"]
    parts = {
        "mlm": losses["mlm"] / (inputs["labels"] != -100).sum(),
        "matched": losses["itm"] / len(mask),
        "qa": losses["answers"] / len(mask),
        "objects": (features + losses["objects"] + losses["attributes"]) / everything.sum() * normalizer,
    }
    logits = mlm.logits(network, states["text"])
    padded = torch.where(mask[..., None], 0, outputs["prediction_logits"]).index_put((mask,), logits)
    hidden_text = torch.where(mask[..., None], 0, outputs["language_output"]).index_put((mask,), states["text"])
    found = {
        "language_output": hidden_text,  # of padding, which is meaningless, theirs
        "vision_output": states["image"].unflatten(0, shape),
        "pooled_output": network.pool(states, batch),
        "prediction_logits": padded,
        "cross_relationship_score": itm.logits(network, states, batch),
        "question_answering_score": answers.logits(network, states, batch),
        "object_scores.feat": mrfr.predict(network, transformed).unflatten(0, shape),
        **{f"object_scores.{key}": head.output(transformed).unflatten(0, shape) for key, head in classes.items()},
        **{f"loss_only.{name}": loss for name, loss in parts.items()},
        "loss": sum(parts.values(), torch.zeros(())),
    }
    compare(found, outputs)


@torch.no_grad()
def test_visual_bert(shared: Path, jagged: Jagged) -> None:
    network, weights, inputs, outputs = released(shared / "golden/hf/visual_bert", "visual_bert")
    mask, words = text_fields(inputs)
    seen = inputs["visual_attention_mask"].bool()
    batch = jagged(text=(mask, words), image=(seen, {"features": inputs["visual_embeds"]}))
    made = read(network, batch, keep_hidden=True)
    there = torch.cat([mask, seen], 1)

    def rows(name: str, text: Tensor, image: Tensor) -> Tensor:
        """Theirs, with ours in the places of all that is there; rows of padding are meaningless."""
        whole = outputs[name].clone()
        whole[:, : mask.shape[1]][mask], whole[:, mask.shape[1] :][seen] = text, image
        return whole

    mlm, itm = head_of(weights, "mlm", MlmHead(network)), head_of(weights, "itm", Itm().head(network))
    labelled = of_rows(mask, inputs["labels"][:, : mask.shape[1]])
    assert len(labelled["rows"]) == (inputs["labels"][there] != -100).sum(), "regions have no labels"
    lost = mlm(HeadInputs.of_read(made, labelled)).loss / len(labelled["rows"])
    matched = {"labels": 1 - inputs["sentence_image_labels"]}
    logits = [mlm.logits(network, made.states[stream]) for stream in ("text", "image")]
    found = {
        **{f"hidden.{i}": rows(f"hidden.{i}", s["text"], s["image"]) for i, s in enumerate(made.hidden)},
        "prediction_logits": rows("prediction_logits", *logits),
        "seq_relationship_logits": itm.logits(network, made.states, batch).flip(1),
        "loss": lost + itm(HeadInputs.of_read(made, matched)).loss / len(mask),
    }
    compare(found, outputs)
