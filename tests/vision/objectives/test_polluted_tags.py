"""The objective `vision.polluted_tags`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.contracts import material
from vision.objectives.polluted_tags import PollutedTags
from vision.sequences.transforms.object_tags import ObjectTagsTransform
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.models.network import Network
from workbench.pretraining.forward import HeadInputs
from workbench.recipe.spec import NetworkSpec
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence, text_fields

EXCUSED = "it reads tags, which the contract's sequences lack"
NAMES = ["river", "boats", "people", "city"]


def sequences() -> list[Sequence]:
    """Six images: the first two have the same tags, the last has no regions and so no tags."""
    found = []
    for number, classes in enumerate(([0], [0], [1, 2], [2], [3, 0], [])):
        image = {"boxes": np.zeros((len(classes), 4), np.float32), "classes": np.array(classes, np.int64)}
        text = text_fields(np.arange(5, 8))
        found.append(Sequence({"text": text, "image": image} if classes else {"text": text}, (number,)))
    return ObjectTagsTransform(material.tokenizer(), NAMES, most=99)(found, Draws(0, "transform", number=()))


def polluted(rate: float, seed: int = 0, given: list[Sequence] | None = None) -> list[Sequence]:
    objective = PollutedTags(rate)
    objective.name = "it"
    given = sequences() if given is None else given
    objective.corrupt(given, Draws(seed, "t", "it", number=(0,)))
    return given


def tags(sequence: Sequence) -> list[int]:
    return sequence.streams["tags"]["input_ids"].tolist() if "tags" in sequence.streams else []


def test_labels_say_whether_the_tags_are_an_images_own() -> None:
    before, labels = [tags(each) for each in sequences()], set()
    for seed in range(10):
        for own, each in zip(before, polluted(0.5, seed), strict=True):
            label = int(each.targets["it"]["labels"][0])
            labels.add(label)
            assert label == (int(tags(each) == own) if own else -100)
            assert tags(each) in before
    assert labels == {0, 1, -100}
    assert [int(each.targets["it"]["labels"][0]) for each in polluted(1.0)] == [0] * 5 + [-100]
    assert [int(each.targets["it"]["labels"][0]) for each in polluted(0.0)] == [1] * 5 + [-100]


def test_lent_tags_are_copies() -> None:
    found = polluted(1.0)
    fields = [each.streams["tags"] for each in found[:-1]]
    fields[0]["taken"][:] = True
    assert not any(other["taken"].any() for other in fields[1:])


def test_without_other_tags_they_stay() -> None:
    assert [int(each.targets["it"]["labels"][0]) for each in polluted(1.0, given=sequences()[:2])] == [1, 1]


def test_hidden_words_of_tags_are_refused() -> None:
    given = sequences()
    given[0].streams["tags"]["taken"][0] = True
    with pytest.raises(WorkbenchError, match="list it before"):
        polluted(0.5, given=given)


def test_the_loss_is_that_of_the_pooled_text() -> None:
    torch.manual_seed(0)
    text = {"embedding": "token", "hidden_size": 8, "max_positions": 64, "dropout": 0.0}
    joint = {"layer": "joint", "streams": ["text", "tags"], "num_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
    spec = NetworkSpec({"text": text, "tags": text}, [joint], poolers=["text"], init_range=0.5)
    network = Network(spec, vocab_size=material.tokenizer().vocab_size)
    objective = PollutedTags()
    objective.name = "it"
    batch = collate(polluted(0.5, 3))
    head = objective.head(network)
    found = head(HeadInputs.of(network, batch, batch.targets["it"]))
    labels = batch.targets["it"]["labels"]
    pooled = network.pool(network(batch), batch)
    scores = pooled @ head.classifier.weight.T + head.classifier.bias  # type: ignore[operator, union-attr]
    wanted = -scores.log_softmax(-1)[torch.arange(5), labels[:5]].sum()
    torch.testing.assert_close(found.loss, wanted)
    assert objective.count(batch) == 5
    with pytest.raises(WorkbenchError, match="add it to model"):
        objective.head(Network(NetworkSpec({"text": text}, [{"layer": "norm", "stream": "text"}]), vocab_size=9))
