"""Ranking against hard negatives: the loss is that of a loop over pairs that are read one by one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from vision.objectives.ranking import Ranking
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.models.network import Network
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sample, Sequence

EXCUSED = "its pairs are of the whole micro-batch, and each is read again; the loop below is its contract"
DRAWS = Draws(0, "t", number=(0,))


@pytest.fixture
def network() -> Network:
    torch.manual_seed(0)
    quiet = {"num_heads": 2, "intermediate_size": 32, "dropout": 0.3, "attention_dropout": 0.0}
    streams = {
        "text": {"embedding": "token", "hidden_size": 16, "vocab_size": 30, "max_positions": 16, "dropout": 0.0},
        "image": {"embedding": "vision.regions", "feature_size": 12, "hidden_size": 16, "dropout": 0.0},
    }
    layers: list[dict[str, Any]] = [{"layer": "joint", "streams": ["text", "image"], **quiet}]
    return Network(NetworkSpec(streams, layers, poolers=["text"], init_range=0.3))


def objective(**options: Any) -> Ranking:
    made = Ranking(**options)
    made.name = "ranking"
    return made


@pytest.fixture
def pairs(samples: list[Sample], sequences: list[Sequence]) -> list[Sequence]:
    """Eight pairs: the last two show one image, the first and the fourth say the same."""
    for sample, sequence in zip(objective().arrange(samples, DRAWS), sequences, strict=True):
        sequence.labels = dict(sample["labels"])
        sequence.streams["text"]["input_ids"] += 3 * sequence.draw[1] % 7 * (sequence.draw[1] != 3)
    return sequences


def alone(network: Network, head: Any, text: Sequence, image: Sequence) -> Tensor:
    """The log-odds of one pair in a batch of its own."""
    batch = collate([Sequence({"text": text.streams["text"], "image": image.streams["image"]}, (0,), "k")])
    logits = head.logits(network, network(batch), batch)[0]
    return logits[1] - logits[0]


def allowed(i: int, j: int) -> bool:
    return i != j and {i, j} != {6, 7} and {i, j} != {0, 3}


def table(network: Network, head: Any, pairs: list[Sequence]) -> Tensor:
    return torch.stack([torch.stack([alone(network, head, t, v) for v in pairs]) for t in pairs])


@pytest.mark.parametrize("hard", [1, 3, 31])
def test_the_margin_is_that_of_a_loop(network: Network, pairs: list[Sequence], hard: int) -> None:
    made = objective(hard=hard, margin=0.3)
    made.corrupt(pairs, DRAWS)
    batch, head = collate(pairs), made.head(network)
    network.eval()
    found = head(HeadInputs.of(network, batch, batch.targets["ranking"]))
    scores = table(network, head, pairs)
    loss, count = torch.zeros(()), 0
    for i in range(8):
        for row in (scores[i], scores[:, i]):
            others = sorted((row[j] for j in range(8) if allowed(i, j)), reverse=True)[:hard]
            count += len(others)
            loss = loss + sum((0.3 + other.sigmoid() - scores[i, i].sigmoid()).clamp(min=0) for other in others)
    assert found.loss.item() == pytest.approx(loss.item(), rel=1e-5)
    assert made.count(batch) == count
    mine = torch.autograd.grad(found.loss, head.classifier.weight)[0]
    theirs = torch.autograd.grad(loss, head.classifier.weight)[0]
    torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


def test_the_choice_is_among_a_random_text_a_random_image_and_the_hardest_text(
    network: Network, pairs: list[Sequence]
) -> None:
    made = objective(way="choice")
    made.corrupt(pairs, DRAWS)
    batch, head = collate(pairs), made.head(network)
    network.eval()
    seen = HeadInputs.of(network, batch, batch.targets["ranking"])
    found = head(seen)
    scores = table(network, head, pairs)
    loss = torch.zeros(())
    for i, sequence in enumerate(pairs):
        others = [j for j in range(8) if allowed(i, j)]
        text, image = (others[int(draw * len(others))] for draw in sequence.targets["ranking"]["drawn"][0])
        hardest = max(others, key=lambda j: float(scores[j, i]))
        logits = torch.stack([scores[i, i], scores[text, i], scores[i, image], scores[hardest, i]])
        loss = loss - logits.log_softmax(0)[0]
    assert found.loss.item() == pytest.approx(loss.item(), rel=1e-5)
    assert made.count(batch) == 8


def test_the_search_is_without_dropout_and_leaves_the_mode_alone(network: Network, pairs: list[Sequence]) -> None:
    made = objective(hard=1)
    made.corrupt(pairs, DRAWS)
    batch, head = collate(pairs), made.head(network)
    network.train()
    seen = HeadInputs.of(network, batch, batch.targets["ranking"])
    assert torch.equal(head._all(seen), head._all(seen))
    assert network.training
    torch.manual_seed(0)
    first = head(seen).loss
    torch.manual_seed(1)
    assert head(seen).loss != first


def test_a_micro_batch_of_one_image_counts_nothing(network: Network, pairs: list[Sequence]) -> None:
    for way in ("margin", "choice"):
        made = objective(way=way)
        made.corrupt(pairs[6:], DRAWS)
        batch = collate(pairs[6:])
        found = made.head(network)(HeadInputs.of(network, batch, batch.targets["ranking"]))
        assert made.count(batch) == found.loss.item() == 0
        found.loss.backward()


def test_exchanged_pairs_are_refused(pairs: list[Sequence]) -> None:
    pairs[0].labels["matched"] = 0
    with pytest.raises(WorkbenchError, match="not a true pair of a text and an image"):
        objective().corrupt(pairs, DRAWS)
