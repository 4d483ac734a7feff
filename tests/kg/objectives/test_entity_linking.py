"""The linker's supervision: labels, masked mentions, both losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from kg.objectives.entity_linking import EntityLinking
from kg.sequences.transforms.candidates import CandidatesTransform
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.models.network import Network
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import LossOutput
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import Batch, collate
from workbench.sequences.sequence import Sequence, Span, text_fields

EXCUSED = "it reads the scores of the layer kg.kar, and streams that the transform kg.candidates makes"

TABLE = {f"Q{i}": i for i in range(6)}
RIGHT, WRONG = {"right": 1}, {"right": 0}
SPANS = [
    Span(1, 2, "Q0", 0.9, labels=WRONG),
    Span(1, 2, "Q1", 0.5, labels=RIGHT),
    Span(1, 2, "Q2", 0.1, labels=WRONG),
    Span(3, 5, "Q3", 0.8),
    Span(6, 8, "Q4", 0.7, labels=WRONG),
    Span(8, 9, "Q5", 0.6, labels=RIGHT),
]


def network(candidates: str = "candidates", **kar: Any) -> Network:
    torch.manual_seed(0)
    table = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    text = {"embedding": "token", "hidden_size": 16, "max_positions": 20, "vocab_size": 20, "dropout": 0.0}
    streams = {"text": text, candidates: {"embedding": "kg.entity_table", "path": table}}
    quiet = {"dropout": 0.0, "attention_dropout": 0.0, "num_heads": 2}
    layer = {"layer": "kg.kar", "stream": "text", "candidates": candidates, "mentions": "mentions", **quiet, **kar}
    return Network(NetworkSpec(streams, [layer, {"layer": "self", "stream": "text", **quiet}], [], init_range=0.3))


def corrupted(part: EntityLinking, taken: tuple[int, ...] = ()) -> tuple[Sequence, Batch]:
    part.name = "it"
    made = Sequence({"text": text_fields(np.arange(10))}, (0,), "k", list(SPANS))
    CandidatesTransform(TABLE)([made], Draws("t", number=(0,)))
    made.streams["text"]["taken"][list(taken)] = True
    part.corrupt([made], Draws("t", number=(0,)))
    return made, collate([made])


def run(part: EntityLinking, read: Network, batch: Batch) -> LossOutput:
    return part.head(read)(HeadInputs.of(read, batch, batch.targets["it"]))


def scores_of(read: Network, batch: Batch) -> list[list[float]]:
    """By labelled mention."""
    found = HeadInputs.of(read, batch, {}).read().taps["candidates"]["scores"].tolist()
    return [found[0:3], found[4:5], found[5:6]]


def test_mentions_that_are_known_are_labelled() -> None:
    made, _ = corrupted(EntityLinking())
    targets = made.targets["it"]
    assert targets["rows"].index.tolist() == [0, 1, 2, 4, 5]
    assert targets["candidates"].tolist() == [3, 1, 1]
    assert targets["labels"].tolist() == [0, 1, 0, 0, 1]


def test_masked_mentions_keep_their_place_and_lose_their_candidates() -> None:
    made, batch = corrupted(EntityLinking(), taken=(4, 8))
    assert made.streams["mentions"]["token"].index.tolist() == [1, 3, 6, 8]
    assert made.streams["candidates"]["mention"].index.tolist() == [0, 0, 0, 2]
    assert made.targets["it"]["labels"].tolist() == [0, 1, 0, 0]
    assert batch.streams["candidates"].rows == 4


def test_the_likelihood_is_that_of_the_right_candidate() -> None:
    part, read = EntityLinking(), network()
    _, batch = corrupted(part)
    first, _, last = scores_of(read, batch)
    expected = -(first[1] - np.log(np.exp(first).sum())) - (last[0] - last[0])
    found = run(part, read, batch)
    assert float(found.loss.detach()) == pytest.approx(expected, abs=1e-5)
    assert part.count(batch) == 2
    assert float(found.metrics["accuracy"][1]) == 2
    assert float(found.metrics["prior_accuracy"][0]) == 1
    assert float(found.metrics["accuracy"][0]) == 1 + (first[1] == max(first))


def test_the_margin_counts_every_candidate_and_mentions_that_mean_none() -> None:
    part, read = EntityLinking(loss="margin", margin=0.2), network(threshold=0.0)
    _, batch = corrupted(part)
    first, nil, last = scores_of(read, batch)
    losses = [0.2 - first[1], 0.2 + first[0], 0.2 + first[2], 0.2 + nil[0], 0.2 - last[0]]
    found = run(part, read, batch)
    assert float(found.loss.detach()) == pytest.approx(sum(max(0.0, loss) for loss in losses), abs=1e-5)
    assert part.count(batch) == 5


def test_what_is_measured_leaves_nil_out() -> None:
    part, read = EntityLinking(), network()
    _, batch = corrupted(part)
    made = run(part, read, batch).outputs
    priors = {**made, "scores": made["priors"]}
    assert part.measure(priors) == {"accuracy": pytest.approx(0.5), "mrr": pytest.approx(0.75)}
    assert part.measure({**made, "labels": torch.zeros(5)}) == {}


@pytest.mark.parametrize("loss", ["likelihood", "margin"])
def test_a_text_in_which_nobody_said_what_is_meant_has_no_loss(loss: Any) -> None:
    part, read = EntityLinking(loss=loss), network()
    part.name = "it"
    made = Sequence({"text": text_fields(np.arange(10))}, (0,), "k", [SPANS[3]])
    CandidatesTransform(TABLE)([made], Draws("t", number=(0,)))
    part.corrupt([made], Draws("t", number=(0,)))
    batch = collate([made])
    found = run(part, read, batch)
    assert part.count(batch) == 0
    assert float(found.loss.detach()) == 0
    found.loss.backward()


def test_it_teaches_the_linker_alone_and_not_the_layers_behind() -> None:
    part, read = EntityLinking(), network()
    _, batch = corrupted(part)
    run(part, read, batch).loss.backward()
    reached = {name for name, p in read.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    assert {f"layers.0.linker.{name}.weight" for name in ("project", "pool", "scorer_inner")} <= reached
    assert not any(name.startswith(("layers.1", "layers.0.project_back", "layers.0.attention")) for name in reached)


def test_a_network_that_does_not_link_the_stream_is_refused() -> None:
    with pytest.raises(WorkbenchError, match=r"needs a layer kg.kar with candidates: candidates .* wiki"):
        EntityLinking().head(network("wiki"))
