"""VOLTA's five architectures on small random weights: the states of our stacks are the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from vision.interop.releases.volta import Volta
from vision.objectives.mrfr import Mrfr
from workbench.errors import WorkbenchError
from workbench.interop.files import find_files
from workbench.interop.reading import read_release
from workbench.interop.release import Config
from workbench.models.network import Network
from workbench.sequences.batch import Batch

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
    network.load_state_dict({n: t for n, t in weights.items() if not n.startswith(("mlm.", "mrfr."))})
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
    hidden = F.layer_norm(hidden, (48,), weights["mlm.norm.weight"], weights["mlm.norm.bias"], 1e-12)
    logits = F.linear(hidden, weights["embeddings.text.token.weight"], weights["mlm.bias"])
    torch.testing.assert_close(logits, outputs["mlm_logits"][masks["text"]], **CLOSE)
    assert ("region_logits.5" in outputs) == (name == "original_lxmert"), "only LXMERT regresses features"
    if name == "original_lxmert":
        head = Mrfr(loss="smooth_l1", tied=False).head(network)
        head.load_state_dict({n.removeprefix("mrfr."): t for n, t in weights.items() if n.startswith("mrfr.")})
        predicted = head.predict(network, head.transform(states["image"]))
        torch.testing.assert_close(predicted, outputs["region_logits.5"][masks["image"]], **CLOSE)


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
