"""The losses of hidden regions in VOLTA's code, on predictions of others: all of them, with and without labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from vision.objectives.mrc import Mrc
from vision.objectives.mrc_kl import MrcKl
from vision.objectives.mrfr import Mrfr
from workbench.models.network import Network
from workbench.pretraining.forward import ForwardPass, HeadInputs, ViewKey
from workbench.sequences.batch import Batch

GOALS = {
    "0": ("pred_class", {"scores": "image_cls"}),
    "1": ("pred_feat", {"features": "image_feat"}),
    "3": ("pred_class", {"labels": "obj_labels", "weights": "obj_confs"}),
    "4": ("pred_attr", {"labels": "attr_labels", "weights": "attr_confs"}),
    "5": ("pred_feat", {"features": "image_feat"}),
    "6": ("pred_class", {"labels": "obj_labels"}),
}
"""By the number of a target: the predicted field of regions, and the options of its head."""
LABELS, WEIGHTS = ("some", "none"), ("1.0", "6.667")


def head_of(number: str, network: Network, classes: int) -> nn.Module:
    if number == "0":
        return MrcKl(classes).head(network)
    if number in ("1", "5"):
        return Mrfr(loss="mse" if number == "1" else "smooth_l1", tied=False).head(network)
    return Mrc(classes, of="mrfr" if number in ("3", "4") else None).head(network)


def predicting(head: nn.Module, predicted: Tensor) -> nn.Module:
    """The head, whose last map (a regression's bias is 0) returns the others' predictions."""
    head.output.register_forward_hook(lambda module, given, made: predicted)
    return head


@pytest.mark.parametrize("labelled", LABELS)
@pytest.mark.parametrize("number", GOALS)
@torch.no_grad()
def test_the_losses_of_the_released_framework(
    number: str, labelled: str, shared: Path, tiny: Callable[..., Network]
) -> None:
    folder = shared / "golden" / "volta" / "region_losses"
    inputs, outputs = load_file(folder / "inputs.safetensors"), load_file(folder / "outputs.safetensors")
    assert outputs.keys() == {f"{one}.{key}.w{weight}" for one in LABELS for key in GOALS for weight in WEIGHTS}
    predicted, goal = inputs[GOALS[number][0]], GOALS[number][1]
    network = tiny()
    network.embeddings["image"].project = nn.Linear(inputs["image_feat"].shape[-1], network.sizes["image"])
    counted = (inputs["image_label"] == 1) & (labelled == "some")
    rows = counted.flatten().nonzero()[:, 0]
    targets = {"rows": rows, **{name: inputs[source][counted] for name, source in goal.items()}} if len(rows) else {}
    states = {"image": torch.zeros(counted.numel(), network.sizes["image"])}
    head = head_of(number, network, predicted.shape[-1])
    loss = predicting(head, predicted[counted])(seen(network, states, targets)).loss
    for weight in WEIGHTS:
        mean = loss / max(len(rows), 1) * float(weight)
        torch.testing.assert_close(mean, outputs[f"{labelled}.{number}.w{weight}"], atol=1e-5, rtol=0)


def seen(network: Network, states: dict[str, Tensor], targets: dict[str, Tensor]) -> Any:
    """A micro-batch in which an objective mrfr has hidden the same rows."""
    forward = ForwardPass({"main": network}, {"main": Batch({})})
    hidden = states["image"][targets["rows"]] if targets else states["image"][:0]
    forward.outputs["mrfr"] = {"hidden": hidden}
    forward.keep_read(ViewKey("main", "main"), HeadInputs.of(network, Batch({}), {}, states).read())
    return HeadInputs(forward, ViewKey("main", "main"), targets, "it")
