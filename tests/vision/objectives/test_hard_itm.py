"""Matching against hard negatives: who is drawn, and the loss of the pairs that are put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from vision.objectives.hard_itm import HardItm, drawn, rivals
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.models.network import Network
from workbench.pretraining.forward import HeadInputs, ViewKey
from workbench.pretraining.model import PretrainingModel
from workbench.pretraining.objective import Head, LossOutput
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import MicroBatch, collate
from workbench.sequences.sequence import Rows, Sample, Sequence

EXCUSED = "its head reads the similarities that another objective has made"
DRAWS = Draws(0, "t", number=(0,))
NAMES = ("text", "image", "text_followed", "image_followed")


@pytest.fixture
def network() -> Network:
    torch.manual_seed(0)
    quiet = {"num_heads": 2, "intermediate_size": 32, "dropout": 0.0, "attention_dropout": 0.0}
    text = {"embedding": "token", "hidden_size": 16, "vocab_size": 30, "max_positions": 16, "dropout": 0.0}
    streams: dict[str, dict[str, Any]] = {
        "text": text,
        "copy": text,
        "image": {"embedding": "vision.regions", "feature_size": 12, "hidden_size": 16, "dropout": 0.0},
    }
    layers: list[dict[str, Any]] = [{"layer": "self", "stream": stream, **quiet} for stream in ("text", "image")]
    layers += [{"layer": "tap", "name": "encoded"}, {"layer": "cross", "stream": "text", "to": "image", **quiet}]
    return Network(NetworkSpec(streams, layers, init_range=0.3))


def objective() -> HardItm:
    made = HardItm("encoded", of="itc")
    made.name = "itm"
    return made


@pytest.fixture
def pairs(samples: list[Sample], sequences: list[Sequence]) -> list[Sequence]:
    """Eight pairs: the last two show one image, the first and the fourth say the same."""
    made = objective()
    for sample, sequence in zip(made.arrange(samples, DRAWS), sequences, strict=True):
        sequence.labels = dict(sample["labels"])
        sequence.streams["text"]["input_ids"] += 3 * sequence.draw[1] % 7 * (sequence.draw[1] != 3)
    return sequences


class Contrast(Head):
    """Hands on vectors as a contrast does."""

    def __init__(self, made: dict[str, Tensor]) -> None:
        super().__init__()
        self.vectors = made

    def forward(self, inputs: HeadInputs) -> LossOutput:
        return LossOutput(torch.zeros(()), {}, self.vectors)


def run(
    network: Network, sequences: list[Sequence], made: HardItm | None = None
) -> tuple[PretrainingModel, MicroBatch, dict[str, Any]]:
    made = made or objective()
    made.corrupt(sequences, DRAWS)
    micro = MicroBatch("t", {"main": collate(sequences)}, {})
    vectors = {name: F.normalize(torch.randn(len(sequences), 8), dim=-1) for name in NAMES}
    vectors["scale"] = torch.full((len(sequences),), 10.0)
    heads: dict[str, Head] = {"itc": Contrast(vectors), "itm": made.head(network)}
    root = PretrainingModel({"main": network}, heads, dict.fromkeys(heads, ViewKey("main", "main")))
    return root, micro, root(micro, ["itc", "itm"])


def test_the_loss_is_that_of_the_true_pairs_and_of_those_put_together(network: Network, pairs: list[Sequence]) -> None:
    root, micro, outputs = run(network, pairs)
    made, head = outputs["itm"].outputs, root.heads["itm"]
    put = [(i, i, 1) for i in range(8)]
    put += [(text, image, 0) for text, image in made["image_of"].tolist()]
    put += [(text, image, 0) for image, text in made["text_of"].tolist()]
    wanted = 0.0
    for text, image, label in put:
        alone = collate([Sequence({"text": pairs[text].streams["text"], "image": pairs[image].streams["image"]}, (0,))])
        logits = head.logits(network, network(alone), alone)
        wanted += F.cross_entropy(logits, torch.tensor([label])).item()
    assert outputs["itm"].loss.item() == pytest.approx(wanted, rel=1e-4)
    assert objective().count(micro.views["main"]) == len(put) == outputs["itm"].metrics["accuracy"][1] == 24
    outputs["itm"].loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in head.parameters())


def test_a_negative_is_never_of_the_same_image_and_never_says_the_same(network: Network, pairs: list[Sequence]) -> None:
    torch.manual_seed(3)
    _, micro, _ = run(network, pairs)
    targets = micro.views["main"].targets["itm"]
    assert len(set(targets["image"].tolist())) == 7
    assert targets["text"][0] == targets["text"][3]
    allowed = rivals(targets)
    assert not allowed.diagonal().any()
    assert not allowed[6, 7]
    assert not allowed[0, 3]
    likely = torch.where(allowed, torch.zeros(()), torch.full((), 50.0))  # what is not allowed is the most alike
    found = {tuple(pair) for _ in range(100) for pair in drawn(likely, allowed, torch.arange(8)).tolist()}
    assert found == {tuple(pair) for pair in allowed.nonzero().tolist()}


def test_the_harder_is_drawn_the_more_often() -> None:
    torch.manual_seed(0)
    scores, allowed = torch.tensor([[9.0, 0.75, 0.25, 0.25]]).log(), torch.tensor([[False, True, True, True]])
    counts = torch.stack([drawn(scores, allowed, torch.tensor([0]))[0, 1] for _ in range(1000)]).bincount(minlength=4)
    shares = torch.tensor([0, 0.6, 0.2, 0.2])
    assert counts[0] == 0
    assert (counts / 1000 - shares).abs().max() < 5 * (0.24 / 1000) ** 0.5


def test_pairs_without_a_rival_have_no_negatives(network: Network, pairs: list[Sequence]) -> None:
    for few in (pairs[:1], pairs[6:]):
        _, micro, outputs = run(network, few)
        assert objective().count(micro.views["main"]) == len(few)
        assert outputs["itm"].metrics["accuracy"][1] == len(few)
        assert outputs["itm"].outputs["text_of"].shape == (0, 2)
    assert objective().count(collate([])) == 0


def test_layers_run_as_often_without_negatives(network: Network, pairs: list[Sequence]) -> None:
    """Under shards the ranks with negatives would wait for those without."""
    counts: list[int] = []
    for layer in network.layers:
        layer.register_forward_hook(lambda *_: counts.append(1))
    found = []
    for few in (pairs, pairs[:1]):
        run(network, few)
        found.append(len(counts))
        counts.clear()
    assert found[0] == found[1] > 0


def test_what_is_no_true_pair_is_refused(pairs: list[Sequence], network: Network) -> None:
    pairs[2].labels["matched"] = 0
    with pytest.raises(WorkbenchError, match="sequence '2' is not a true pair"):
        objective().corrupt(pairs[2:3], DRAWS)
    del pairs[3].streams["image"]
    with pytest.raises(WorkbenchError, match="sequence '3' is not a true pair"):
        objective().corrupt(pairs[3:4], DRAWS)


def test_a_network_without_images_is_refused(tiny: Callable) -> None:
    network = tiny()
    del network.sizes["image"]
    with pytest.raises(WorkbenchError, match="unknown stream 'image'"):
        objective().head(network)


def test_what_belongs_to_a_text_stays_behind_where_it_is_not_read(network: Network, pairs: list[Sequence]) -> None:
    """The wrong pairs have the streams that are read, and those that belong to them unless they are left out."""
    for sequence in pairs:
        length = sequence.length("text")
        copy = {**sequence.streams["text"], "of": Rows("text", np.zeros(length, np.int64), bound=True)}
        sequence.streams["copy"] = copy
    seen: list[set[str]] = []
    network.layers[-1].register_forward_pre_hook(lambda _, given: seen.append({*given[1].batch.streams}))
    for without in (list[str](), ["copy"]):
        made = HardItm("encoded", of="itc", without=without)
        made.name = "itm"
        run(network, pairs, made)
    assert seen == [{"text", "image", "copy"}, {"text", "image", "copy"}, {"text", "image", "copy"}, {"text", "image"}]
