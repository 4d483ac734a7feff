"""VOLTA's five architectures on small random weights: the states of our stacks are the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from vision.interop.releases.volta import Volta
from vision.objectives.answers import Answers
from vision.objectives.itm import Itm, ItmHead
from vision.objectives.mrc import Mrc
from vision.objectives.mrc_kl import MrcKlHead
from vision.objectives.mrfr import Mrfr
from workbench.errors import WorkbenchError
from workbench.interop.files import find_files
from workbench.interop.reading import read_release
from workbench.interop.release import Config
from workbench.models.network import Network
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Batch
from workbench.tasks.forward import Seen

CLOSE = {"atol": 1e-5, "rtol": 0}
FOLDERS = ("ctrl_uniter", "ctrl_visualbert", "ctrl_lxmert", "ctrl_vilbert", "original_lxmert", "original_vilbert")


@pytest.mark.parametrize("name", FOLDERS)
@torch.no_grad()
def test_states_and_word_logits(name: str, shared: Path, jagged: Callable[..., Batch]) -> None:
    folder = shared / "golden" / "volta" / name
    inputs, outputs = load_file(folder / "inputs.safetensors"), load_file(folder / "outputs.safetensors")
    files = find_files(folder)
    assert files is not None
    read = read_release(files)
    spec, weights, left, missing = read.network, read.tensors, read.unused, read.missing
    assert not missing
    network = Network(spec).eval()
    network.load_state_dict({n: t for n, t in weights.items() if n.startswith(("embeddings.", "layers."))})
    assert not [n for n in left if ".encoder." in n], "an attention or feed-forward tensor was left out"
    masks = {"text": inputs["attention_mask"].bool(), "image": inputs["image_attention_mask"].bool()}
    positions = torch.arange(inputs["input_ids"].shape[1]).expand_as(inputs["input_ids"])
    batch = jagged(
        text=(masks["text"], {**{n: inputs[n] for n in ("input_ids", "token_type_ids")}, "position_ids": positions}),
        image=(masks["image"], {"features": inputs["image_feat"], "boxes": inputs["image_loc"][..., :4]}),
    )
    embedded = {s: network.embeddings[s](batch.streams[s].fields) for s in masks}
    states = network(batch)
    last = max(int(n.split(".")[1]) for n in outputs if n.startswith("text_states."))
    for stream, mask in masks.items():
        torch.testing.assert_close(embedded[stream], outputs[f"{stream}_states.0"][mask], **CLOSE)
        torch.testing.assert_close(states[stream], outputs[f"{stream}_states.{last}"][mask], **CLOSE)
    hidden = F.gelu(F.linear(states["text"], weights["mlm.dense.weight"], weights["mlm.dense.bias"]))
    hidden = F.layer_norm(hidden, hidden.shape[-1:], weights["mlm.norm.weight"], weights["mlm.norm.bias"], 1e-12)
    logits = F.linear(hidden, weights["embeddings.text.token.weight"], weights["mlm.bias"])
    torch.testing.assert_close(logits, outputs["mlm_logits"][masks["text"]], **CLOSE)
    assert ("region_logits.5" in outputs) == (name == "original_lxmert"), "only LXMERT regresses features"
    if name == "original_lxmert":
        head = Mrfr(loss="smooth_l1", tied=False).head(network)
        head.load_state_dict(of_head(weights, "mrfr"))
        hidden = head.transform(states["image"])
        predicted = head.predict(network, hidden)
        torch.testing.assert_close(predicted, outputs["region_logits.5"][masks["image"]], **CLOSE)
        for of, target in (("objects", "3"), ("attributes", "4")):
            expected = outputs[f"region_logits.{target}"]
            other = Mrc(expected.shape[-1], of="mrfr").head(network)
            other.load_state_dict(of_head(weights, of))
            torch.testing.assert_close(other.output(hidden), expected[masks["image"]], **CLOSE)
        matching = Itm(pool=["text"], pooled_size=len(weights["itm.poolers.text.bias"])).head(network)
        matching.load_state_dict(of_head(weights, "itm"))
        torch.testing.assert_close(matching.logits(network, states, batch).flip(1), outputs["itm_logits"], **CLOSE)
        known = [str(n) for n in range(outputs["qa_logits"].shape[1])]
        asked = Answers(known, pooled_size=len(weights["answers.pooler.bias"])).head(network)
        asked.load_state_dict(of_head(weights, "answers"))
        torch.testing.assert_close(asked.logits(network, states, batch), outputs["qa_logits"], **CLOSE)


def of_head(weights: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """Of all weights under our names those of a head."""
    return {n.partition(".")[2]: t for n, t in weights.items() if n.startswith(f"{name}.")}


def test_a_stack_we_do_not_have_is_refused(shared: Path) -> None:
    config = json.loads((shared / "golden" / "volta" / "ctrl_lxmert" / "config.json").read_text())
    config["tv_attn_sublayers"] = [*config["tv_attn_sublayers"], 2]
    with pytest.raises(WorkbenchError, match="sublayer 2 attends"):
        Volta().network(Config(config))


@pytest.mark.parametrize("function", ["mse", "smooth_l1"])
@torch.no_grad()
def test_region_regression_losses(function: str, shared: Path) -> None:
    folder = shared / "golden" / "volta" / "region_losses"
    inputs, outputs = load_file(folder / "inputs.safetensors"), load_file(folder / "outputs.safetensors")
    counted = inputs["image_label"] == 1
    loss = {"mse": F.mse_loss, "smooth_l1": F.smooth_l1_loss}[function]
    ours = loss(inputs["pred_feat"][counted], inputs["image_feat"][counted], reduction="none").mean(-1).sum()
    key = {"mse": "1", "smooth_l1": "5"}[function]
    names = [n for n in outputs if n.startswith(f"some.{key}.w1")]
    assert names, sorted(outputs)
    torch.testing.assert_close(ours / counted.sum(), outputs[names[0]], **CLOSE)


@pytest.mark.parametrize("name", [name for name in FOLDERS if name != "original_lxmert"])  # which regresses features
@torch.no_grad()
def test_the_distributions_and_the_alignment_of_vilbert(name: str, shared: Path, jagged: Callable[..., Batch]) -> None:
    """Poolers with relu, multiplied, and the divergence from the detector's classes."""
    folder = shared / "golden" / "volta" / name
    inputs, outputs = load_file(folder / "inputs.safetensors"), load_file(folder / "outputs.safetensors")
    files = find_files(folder)
    assert files is not None
    weights = read_release(files).tensors
    masks = {"text": inputs["attention_mask"].bool(), "image": inputs["image_attention_mask"].bool()}
    streams = {s: (mask, {"place": torch.zeros(mask.shape)}) for s, mask in masks.items()}
    batch = jagged(**streams)
    last = max(int(n.split(".")[1]) for n in outputs if n.startswith("text_states."))
    states = {s: outputs[f"{s}_states.{last}"][mask] for s, mask in masks.items()}
    sizes = {s: rows.shape[1] for s, rows in states.items()}
    head = ItmHead(["text", "image"], sizes, len(weights["itm.poolers.text.bias"]))
    head.load_state_dict(of_head(weights, "itm"))
    network = Network(NetworkSpec({"text": {"embedding": "token", "hidden_size": 8, "vocab_size": 4}}, []))
    torch.testing.assert_close(head.logits(network, states, batch).flip(1), outputs["itm_logits"], **CLOSE)
    kl = MrcKlHead(sizes["image"], len(weights["mrc_kl.output.bias"]))
    kl.load_state_dict(of_head(weights, "mrc_kl"))
    logits = torch.zeros_like(outputs["region_logits.0"])
    logits[masks["image"]] = kl.logits(states["image"])
    torch.testing.assert_close(logits[masks["image"]], outputs["region_logits.0"][masks["image"]], **CLOSE)
    wanted, whole = inputs["image_label"] == 1, torch.ones(len(logits), 1, dtype=torch.bool)
    placed = torch.cat([~whole, wanted], 1) & masks["image"]  # the image as a whole is the first row
    rows = placed[masks["image"]].nonzero()[:, 0]
    targets = {"rows": rows, "scores": inputs["image_cls"][wanted]}
    loss = kl(Seen.of(network, batch, targets, states)).loss / wanted.sum()
    torch.testing.assert_close(loss, outputs["loss_region_part.0"], **CLOSE)
