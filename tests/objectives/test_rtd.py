"""Replaced token detection: what is drawn, what is learned, and the published heads and embeddings to 1e-5."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from workbench.interop.families.electra import Electra
from workbench.interop.family import FamilyConfig
from workbench.interop.rules import to_ours
from workbench.models.network import Network
from workbench.objectives.mlm import MlmHead
from workbench.objectives.rtd import Rtd, RtdHead
from workbench.pretraining.forward import ViewKey
from workbench.pretraining.model import PretrainingModel
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Batch, MicroBatch, Stream

EXCUSED = "its head reads what another objective has made"
LENGTHS = [5, 3]
MASK = 4


def spec(size: int = 8, **more: Any) -> NetworkSpec:
    text = {"embedding": "token", "hidden_size": size, "dropout": 0.0}
    layer = {"layer": "self", "stream": "text", "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
    return NetworkSpec({"text": text}, [layer], **more)


@pytest.fixture
def root() -> PretrainingModel:
    torch.manual_seed(0)
    networks = {"generator": Network(spec(4), vocab_size=20), "main": Network(spec(), vocab_size=20)}
    heads = {"mlm": MlmHead(networks["generator"]), "rtd": Rtd().head(networks["main"])}
    return PretrainingModel(networks, heads, {"mlm": ViewKey("generator", "main"), "rtd": ViewKey("main", "main")})


@pytest.fixture
def batch() -> Batch:
    ids = torch.tensor([5, MASK, 7, 8, MASK, 10, 11, 12])
    positions = torch.cat([torch.arange(length) for length in LENGTHS])
    fields = {"input_ids": ids, "position_ids": positions, "token_type_ids": torch.zeros_like(ids)}
    targets = {"mlm": {"rows": torch.tensor([1, 4]), "labels": torch.tensor([6, 9])}}
    return Batch({"text": Stream(fields, torch.tensor([0, 5, 8]), LENGTHS)}, targets, ["a", "b"])


def run(root: PretrainingModel, batch: Batch) -> dict[str, Any]:
    return root(MicroBatch("text", {"main": batch}, {}), ["mlm", "rtd"])


def always(head: MlmHead, token: int) -> None:
    """Let the generator be sure of one token."""
    with torch.no_grad():
        head.bias.fill_(-1e4)
        head.bias[token] = 1e4


def given_to_the_discriminator(root: PretrainingModel, batch: Batch) -> Tensor:
    found: list[Tensor] = []
    hook = root.network("main").register_forward_pre_hook(
        lambda _, arguments: found.append(arguments[0].streams["text"].fields["input_ids"])
    )
    run(root, batch)
    hook.remove()
    return found[0]


def test_the_discriminator_reads_the_text_with_what_was_drawn(root: PretrainingModel, batch: Batch) -> None:
    always(root.heads["mlm"], 13)
    assert given_to_the_discriminator(root, batch).tolist() == [5, 13, 7, 8, 13, 10, 11, 12]
    assert run(root, batch)["rtd"].metrics["found"][1] == 2


def test_a_draw_that_hits_the_original_is_no_replacement(root: PretrainingModel, batch: Batch) -> None:
    always(root.heads["mlm"], 6)
    output = run(root, batch)["rtd"]
    assert output.metrics["found"][1] == 1
    assert output.metrics["accuracy"][1] == 8


def test_draws_follow_the_generators_distribution(root: PretrainingModel, batch: Batch) -> None:
    with torch.no_grad():
        for parameter in root.heads["mlm"].parameters():
            parameter.zero_()
        root.heads["mlm"].bias.fill_(-1e4)
        root.heads["mlm"].bias[6], root.heads["mlm"].bias[13] = torch.tensor([0.75, 0.25]).log()
    torch.manual_seed(1)
    drawn = torch.cat([given_to_the_discriminator(root, batch)[[1, 4]] for _ in range(200)])
    assert set(drawn.tolist()) == {6, 13}
    assert abs((drawn == 6).float().mean() - 0.75) < 5 * (0.75 * 0.25 / 400) ** 0.5


def test_no_gradient_goes_through_the_draw(root: PretrainingModel, batch: Batch) -> None:
    run(root, batch)["rtd"].loss.backward()
    assert all(parameter.grad is None for parameter in root.network("generator").parameters())
    assert all(p.grad is not None and p.grad.isfinite().all() for p in root.heads["rtd"].parameters())


def test_every_token_counts(batch: Batch) -> None:
    assert Rtd().count(batch) == 8


def test_the_draw_is_that_of_the_device_generator(root: PretrainingModel, batch: Batch) -> None:
    losses = []
    for seed in (0, 0, 1, 2):
        torch.manual_seed(seed)
        losses.append(run(root, batch)["rtd"].loss.item())
    assert losses[0] == losses[1]
    assert len(set(losses)) > 1


def released(folder: Path, kind: str) -> tuple[Network, dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
    """The network with the weights of the library's classes, the weights of its head, inputs and outputs."""
    config = FamilyConfig({"model_type": "electra", **json.loads((folder / "config.json").read_text())["config"]})
    weights, unused = to_ours(load_file(folder / "weights.safetensors"), Electra().rules(config))
    assert not unused
    network = Network(Electra().network(config)).eval()
    network.load_state_dict({n: t for n, t in weights.items() if n.startswith(("embeddings.", "layers."))})
    head = {n.removeprefix(f"{kind}."): t for n, t in weights.items() if n.startswith(f"{kind}.")}
    return network, head, load_file(folder / "inputs.safetensors"), load_file(folder / "outputs.safetensors")


def jagged(inputs: dict[str, Tensor]) -> tuple[Batch, Tensor]:
    """The inputs without their padding, and which places of the padded grid the rows are."""
    mask = inputs["attention_mask"].bool()
    lengths = mask.sum(1).tolist()
    fields = {name: inputs[name][mask] for name in ("input_ids", "token_type_ids")}
    fields["position_ids"] = torch.arange(mask.shape[1]).expand(mask.shape)[mask]
    return Batch({"text": Stream(fields, torch.tensor([0, *lengths]).cumsum(0), lengths)}), mask


def test_the_generator_is_the_published_one(shared: Path) -> None:
    network, weights, inputs, outputs = released(shared / "golden" / "hf" / "electra_generator", "mlm")
    head = MlmHead(network)
    head.load_state_dict(weights)
    batch, mask = jagged(inputs)
    rows = network(batch)["text"]
    last = max(name for name in outputs if name.startswith("hidden."))
    torch.testing.assert_close(rows, outputs[last][mask], rtol=1e-5, atol=1e-5)
    logits = head.logits(network, rows)
    torch.testing.assert_close(logits, outputs["logits"][mask], rtol=1e-5, atol=1e-5)
    labels = inputs["labels"][mask]
    loss = head.loss(logits, labels).loss / (labels != -100).sum()
    torch.testing.assert_close(loss, outputs["loss"], rtol=1e-5, atol=1e-5)


def test_the_discriminator_is_the_published_one(shared: Path) -> None:
    network, weights, inputs, outputs = released(shared / "golden" / "hf" / "electra_discriminator", "rtd")
    head = RtdHead(network.sizes["text"], "mlm")
    head.load_state_dict(weights)
    batch, mask = jagged(inputs)
    logits = head.logits(network(batch)["text"])
    torch.testing.assert_close(logits, outputs["logits"][mask], rtol=1e-5, atol=1e-5)
    labels = inputs["labels"][mask].float()
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)
    torch.testing.assert_close(loss, outputs["loss"], rtol=1e-5, atol=1e-5)
