"""Contrast by the best of an image's queries, and matching by the mean of their logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from vision.metrics.retrieval_scores import DualScores
from vision.objectives.hard_itm import HardItm
from vision.objectives.query_contrast import QueryContrast
from workbench.core.keyed import Draws
from workbench.models.network import Network
from workbench.pretraining.forward import HeadInputs, ViewKey
from workbench.pretraining.model import PretrainingModel
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import MicroBatch, collate
from workbench.sequences.sequence import Sample, Sequence
from workbench.sequences.transforms.queries import QueriesTransform

EXCUSED = "it needs a stream of queries, which the samples of the contracts don't have"
DRAWS = Draws(0, "t", number=(0,))
QUERIES = 3


@pytest.fixture
def network() -> Network:
    torch.manual_seed(0)
    quiet = {"num_heads": 2, "intermediate_size": 32, "dropout": 0.0, "attention_dropout": 0.0}
    streams = {
        "text": {"embedding": "token", "hidden_size": 16, "vocab_size": 30, "max_positions": 16, "dropout": 0.0},
        "image": {"embedding": "vision.regions", "feature_size": 12, "hidden_size": 16, "dropout": 0.0},
        "queries": {"embedding": "queries", "hidden_size": 16, "count": QUERIES},
    }
    layers: list[dict[str, Any]] = [
        {"layer": "self", "stream": "image", **quiet},
        {"layer": "tap", "name": "encoded"},
        {"layer": "vision.qformer", "streams": ["queries", "text"], "to": "image", **quiet},
        {"layer": "vision.qformer", "streams": ["queries", "text"], **quiet},
    ]
    return Network(NetworkSpec(streams, layers, init_range=0.3))


@pytest.fixture
def pairs(samples: list[Sample], sequences: list[Sequence]) -> list[Sequence]:
    """Eight pairs with queries, the last two of one image, the first and the fourth with the same text."""
    for sample, sequence in zip(contrast().arrange(samples, DRAWS), sequences, strict=True):
        sequence.labels = dict(sample["labels"])
        sequence.streams["text"]["input_ids"] += 3 * sequence.draw[1] % 7 * (sequence.draw[1] != 3)
    return QueriesTransform("queries", QUERIES)(sequences, DRAWS)


def contrast() -> QueryContrast:
    objective = QueryContrast(8)
    objective.name = "itc"
    return objective


def matching() -> HardItm:
    objective = HardItm("encoded", of="itc", queries="queries")
    objective.name = "itm"
    return objective


def copies(sequences: list[Sequence]) -> list[Sequence]:
    return [sequence.copy() for sequence in sequences]


def test_the_loss_is_that_of_the_best_queries(network: Network, pairs: list[Sequence]) -> None:
    objective, apart = contrast(), copies(pairs)
    objective.corrupt(apart, DRAWS)
    batch, head = collate(apart), objective.head(network)
    output = head(HeadInputs.of(network, batch, batch.targets["itc"]))
    weights = {name: value.detach() for name, value in head.state_dict().items()}

    def vectors(states: Tensor, stream: str) -> Tensor:
        place = f"space.projections.{stream}"
        return F.normalize(states @ weights[f"{place}.weight"].T + weights[f"{place}.bias"], dim=-1)

    text, queries = [], []
    for pair in pairs:  # each by itself: none of the two sees the other
        [words] = network(collate([pair.alone("text")]))["text"][:1]
        text.append(vectors(words.detach(), "text"))
        queries.append(vectors(network(collate([pair.alone("image")]))["queries"].detach(), "queries"))
    scores = torch.tensor([[max((own @ query).item() for query in each) for each in queries] for own in text]) / 0.07
    ids = batch.targets["itc"]["image"].flatten().tolist()
    ignored = torch.tensor([[a == b and i != j for j, b in enumerate(ids)] for i, a in enumerate(ids)])
    assert ignored.sum() == 2
    scores = scores.masked_fill(ignored, float("-inf"))
    answers = torch.arange(8)
    wanted = (F.cross_entropy(scores, answers) + F.cross_entropy(scores.T, answers)) / 2 * 8
    torch.testing.assert_close(output.loss.detach(), wanted, rtol=1e-4, atol=1e-4)
    found = DualScores(output.outputs["text"].detach(), output.outputs["image"].detach())
    torch.testing.assert_close(found.block(slice(0, 8), slice(0, 8)).masked_fill(ignored, 0) / 0.07,
                               scores.masked_fill(ignored, 0), rtol=1e-4, atol=1e-4)  # fmt: skip
    output.loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in head.parameters())


def test_an_image_keeps_its_queries_in_pairs_that_are_put_together(network: Network, pairs: list[Sequence]) -> None:
    objectives, views = {"itc": contrast(), "itm": matching()}, {"itc": copies(pairs), "itm": copies(pairs)}
    for name, objective in objectives.items():
        objective.corrupt(views[name], DRAWS)
    heads = {name: objective.head(network) for name, objective in objectives.items()}
    places = {name: ViewKey("main", name) for name in objectives}
    root = PretrainingModel({"main": network}, heads, places)
    micro = MicroBatch("t", {name: collate(view) for name, view in views.items()}, {})
    output = root(micro, ["itc", "itm"])["itm"]
    put = [(i, i, 1) for i in range(8)]
    put += [(text, image, 0) for text, image in output.outputs["image_of"].tolist()]
    put += [(text, image, 0) for image, text in output.outputs["text_of"].tolist()]
    assert len(put) == 24
    wanted, classify = 0.0, heads["itm"].classifier
    for text, image, label in put:
        alone = {name: pairs[image].streams[name] for name in ("image", "queries")}
        states = network(collate([Sequence({"text": pairs[text].streams["text"], **alone}, (0,))]))
        logits = torch.stack([classify(query) for query in states["queries"]]).mean(0)
        wanted += F.cross_entropy(logits, torch.tensor(label)).item()
    assert output.loss.item() == pytest.approx(wanted, rel=1e-4)
