"""Hugging Face's LXMERT and VisualBERT as our networks: states and heads are those of their library."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from workbench.interop.reading import make_release
from workbench.interop.release import Config
from workbench.interop.rules import to_ours
from workbench.models.network import Network
from workbench.sequences.batch import Batch

CLOSE = {"atol": 1e-5, "rtol": 0.0}
Jagged = Callable[..., Batch]


def released(folder: Path, name: str) -> tuple[Network, dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
    """The network, the weights under our names, inputs and outputs."""
    release = make_release(f"vision.{name}")
    config = Config(json.loads((folder / "config.json").read_text())["config"])
    weights = to_ours(load_file(folder / "weights.safetensors"), release.rules(config)).tensors
    spec = release.network(config)
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


@torch.no_grad()
def test_lxmert(shared: Path, jagged: Jagged) -> None:
    network, weights, inputs, outputs = released(shared / "golden/hf/lxmert", "lxmert")
    mask, words = text_fields(inputs)
    everything = torch.ones(inputs["visual_pos"].shape[:2], dtype=torch.bool)
    batch = jagged(
        text=(mask, words), image=(everything, {"features": inputs["visual_feats"], "boxes": inputs["visual_pos"]})
    )
    states = network(batch)
    torch.testing.assert_close(states["text"], outputs["language_output"][mask], **CLOSE)
    torch.testing.assert_close(states["image"], outputs["vision_output"][everything], **CLOSE)
    pooled = network.pool(states, batch)
    torch.testing.assert_close(pooled, outputs["pooled_output"], **CLOSE)
    matched = torch.nn.functional.linear(pooled, weights["itm.classifier.weight"], weights["itm.classifier.bias"])
    torch.testing.assert_close(matched, outputs["cross_relationship_score"], **CLOSE)


@torch.no_grad()
def test_visual_bert(shared: Path, jagged: Jagged) -> None:
    network, weights, inputs, outputs = released(shared / "golden/hf/visual_bert", "visual_bert")
    mask, words = text_fields(inputs)
    seen = inputs["visual_attention_mask"].bool()
    batch = jagged(text=(mask, words), image=(seen, {"features": inputs["visual_embeds"]}))
    states = network(batch)
    length = mask.shape[1]
    last = outputs[max(name for name in outputs if name.startswith("hidden."))]
    torch.testing.assert_close(states["text"], last[:, :length][mask], **CLOSE)
    torch.testing.assert_close(states["image"], last[:, length:][seen], **CLOSE)
    pooled = network.pool(states, batch)
    matched = torch.nn.functional.linear(pooled, weights["itm.classifier.weight"], weights["itm.classifier.bias"])
    torch.testing.assert_close(matched.flip(1), outputs["seq_relationship_logits"], **CLOSE)
