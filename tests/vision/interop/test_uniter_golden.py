"""UNITER's original code on small random weights: embeddings, states, logits and losses of ours are the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from vision.objectives.itm import Itm
from vision.objectives.mrc import Mrc
from vision.objectives.mrc_kl import MrcKl
from vision.objectives.mrfr import Mrfr
from vision.objectives.wra import Wra
from workbench.interop.files import find_files
from workbench.interop.reading import read_release
from workbench.models.network import Network
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Batch
from workbench.tasks.forward import Seen

CLOSE = {"atol": 1e-5, "rtol": 0}


class Golden:
    def __init__(self, folder: Path) -> None:
        self.inputs = load_file(folder / "inputs.safetensors")
        self.outputs = load_file(folder / "outputs.safetensors")
        files = find_files(folder)
        assert files is not None
        self.weights = read_release(files).tensors
        self.text = ~self.inputs["txt_pad"]
        self.image = ~self.inputs["img_pad"]

    def split(self, joint: Tensor) -> tuple[Tensor, Tensor]:
        """Joint rows [batch, length, ...] (regions right after the real text) -> text rows, image rows."""
        text, image = [], []
        for row, words, regions in zip(joint, self.text.sum(1).tolist(), self.image.sum(1).tolist(), strict=True):
            text.append(row[:words])
            image.append(row[words : words + regions])
        return torch.cat(text), torch.cat(image)


@pytest.fixture(scope="module")
def golden(shared: Path) -> Golden:
    return Golden(shared / "golden" / "uniter")


@pytest.fixture(scope="module")
def network(golden: Golden) -> Network:
    spec = NetworkSpec(
        streams={
            "text": {
                "embedding": "token",
                "hidden_size": 48,
                "vocab_size": 90,
                "max_positions": 24,
                "token_types": 1,
            },
            "image": {
                "embedding": "vision.regions",
                "hidden_size": 48,
                "feature_size": 24,
            },
        },
        layers=[{"layer": "joint", "streams": ["text", "image"], "num_heads": 4, "intermediate_size": 96, "repeat": 3}],
        poolers=["text"],
    )
    network = Network(spec).eval()
    network.load_state_dict(
        {n: t for n, t in golden.weights.items() if n.split(".")[0] in ("embeddings", "layers", "poolers")}
    )
    return network


@pytest.fixture(scope="module")
def batch(golden: Golden, jagged: Callable[..., Batch]) -> Callable[..., Batch]:
    def made(masked_text: bool = False, masked_regions: bool = False) -> Batch:
        inputs = golden.inputs
        ids = inputs["input_ids_masked" if masked_text else "input_ids"]
        features, masks = inputs["img_feat"], inputs["img_masks"]
        fields = {"features": features, "boxes": inputs["img_pos_feat"][..., :4]}
        if masked_regions:
            fields = {**fields, "features": features.masked_fill(masks[..., None], 0), "masked": masks}
        text = {
            "input_ids": ids,
            "position_ids": inputs["position_ids"].expand_as(ids),
            "token_type_ids": torch.zeros_like(ids),
        }
        return jagged(text=(golden.text, text), image=(golden.image, fields))

    return made


@torch.no_grad()
def test_states(golden: Golden, network: Network, batch: Callable[..., Batch]) -> None:
    clean = batch()
    embedded = {name: network.embeddings[name](clean.streams[name].fields) for name in ("text", "image")}
    states = network(clean)
    for ours, theirs in ((embedded, "embedding"), (states, "hidden.2")):
        text, image = golden.split(golden.outputs[theirs])
        torch.testing.assert_close(ours["text"], text, **CLOSE)
        torch.testing.assert_close(ours["image"], image, **CLOSE)
    torch.testing.assert_close(network.pool(states, clean, "text"), golden.outputs["pooled"], **CLOSE)


@torch.no_grad()
def test_words(golden: Golden, network: Network, batch: Callable[..., Batch]) -> None:
    head = _head(golden, "mlm")
    states = network(batch(masked_text=True))["text"]
    hidden = F.gelu(F.linear(states, head["dense.weight"], head["dense.bias"]))
    hidden = F.layer_norm(hidden, (48,), head["norm.weight"], head["norm.bias"], 1e-12)
    logits = F.linear(hidden, network.embeddings["text"].token.weight, head["bias"])
    labels = golden.inputs["txt_labels"][golden.text]
    torch.testing.assert_close(logits[labels != -1], golden.outputs["mlm_logits"], **CLOSE)


@torch.no_grad()
def test_region_regression(golden: Golden, network: Network, batch: Callable[..., Batch]) -> None:
    head = Mrfr().head(network)
    head.load_state_dict(_head(golden, "mrfr"))
    masked = batch(masked_regions=True)
    rows = masked.streams["image"].fields["masked"].nonzero()[:, 0]
    states = network(masked)
    torch.testing.assert_close(
        head.predict(network, head.transform(states["image"][rows])), golden.outputs["mrfr_pred"], **CLOSE
    )
    goal = golden.inputs["img_feat"][golden.inputs["img_masks"]]
    output = head(Seen.of(network, masked, {"rows": rows, "features": goal}, states))
    torch.testing.assert_close(output.loss / len(rows), golden.outputs["train_loss_mrfr"], **CLOSE)


@torch.no_grad()
def test_region_classes(golden: Golden, network: Network, batch: Callable[..., Batch]) -> None:
    masked = batch(masked_regions=True)
    rows = masked.streams["image"].fields["masked"].nonzero()[:, 0]
    states, scores = network(masked), golden.inputs["img_soft_labels"][golden.inputs["img_masks"]]
    kl = MrcKl(15).head(network)
    kl.load_state_dict(_head(golden, "mrc_kl"))
    torch.testing.assert_close(kl.logits(states["image"][rows]), golden.outputs["mrc_logits"], **CLOSE)
    output = kl(Seen.of(network, masked, {"rows": rows, "scores": scores}, states))
    torch.testing.assert_close(output.loss / scores.numel(), golden.outputs["train_loss_mrckl"], **CLOSE)
    hard = Mrc(15).head(network)
    hard.load_state_dict(_head(golden, "mrc"))
    labels = scores[:, 1:].argmax(-1) + 1  # the background is never a target
    output = hard(Seen.of(network, masked, {"rows": rows, "labels": labels}, states))
    torch.testing.assert_close(output.loss / len(rows), golden.outputs["train_loss_mrc"], **CLOSE)


@torch.no_grad()
def test_matching(golden: Golden, network: Network, batch: Callable[..., Batch]) -> None:
    head = Itm().head(network)
    head.load_state_dict(_head(golden, "itm"))
    clean = batch()
    states = network(clean)
    torch.testing.assert_close(head.logits(network, states, clean), golden.outputs["itm_logits"], **CLOSE)
    output = head(Seen.of(network, clean, {"labels": golden.inputs["itm_targets"]}, states))
    torch.testing.assert_close(output.loss / 3, golden.outputs["train_loss_itm"], **CLOSE)


@torch.no_grad()
def test_alignment(golden: Golden, network: Network, batch: Callable[..., Batch]) -> None:
    clean, labels = batch(), golden.inputs["itm_targets"]
    lengths = {name: torch.tensor(clean.streams[name].lengths) for name in ("text", "image")}
    targets = {
        "labels": labels,
        "words": torch.arange(clean.streams["text"].rows),
        "regions": torch.arange(clean.streams["image"].rows),
        "num_words": lengths["text"],
        "num_regions": lengths["image"],
    }
    output = Wra().head(network)(Seen.of(network, clean, targets, network(clean)))
    torch.testing.assert_close(output.loss / len(labels), golden.outputs["ot_loss"], **CLOSE)
    torch.testing.assert_close(output.metrics["matched"][0], golden.outputs["ot_pos"].sum(), **CLOSE)
    torch.testing.assert_close(output.metrics["exchanged"][0], golden.outputs["ot_neg"].sum(), **CLOSE)
    itm = golden.outputs["train_loss_itm"]
    torch.testing.assert_close(itm + 0.1 * output.loss / len(labels), golden.outputs["train_loss_itm_ot"], **CLOSE)


def _head(golden: Golden, name: str) -> dict[str, Tensor]:
    converted = golden.weights
    return {n.removeprefix(f"{name}."): t for n, t in converted.items() if n.startswith(f"{name}.")}
