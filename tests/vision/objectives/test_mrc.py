"""Masked region classification."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch

from tests.contracts.cases import ObjectiveCase
from vision.objectives.mrc import Mrc
from vision.objectives.mrfr import Mrfr
from workbench.core.errors import WorkbenchError
from workbench.models.network import Network
from workbench.pretraining.forward import ForwardPass, HeadInputs, ViewKey
from workbench.sequences.sequence import Sequence


def originals(before: Sequence, after: Sequence, shared: Mapping[str, np.ndarray]) -> None:
    image, target = before.streams["image"], after.targets["it"]
    np.testing.assert_array_equal(target["labels"], image["classes"][target["rows"].index])


def attributes(before: Sequence, after: Sequence, shared: Mapping[str, np.ndarray]) -> None:
    image, target = before.streams["image"], after.targets["it"]
    np.testing.assert_array_equal(target["labels"], image["attributes"][target["rows"].index])
    np.testing.assert_array_equal(target["weights"], image["attribute_confidence"][target["rows"].index])


CASES = {
    "": ObjectiveCase({"rate": 0.4, "num_classes": 3, "norm": False}, reads=("image",), recover=originals),
    "attributes": ObjectiveCase(
        {"rate": 0.4, "num_classes": 3, "target": "attributes", "weighted": True}, reads=("image",), recover=attributes
    ),
}


def named(objective: Mrc | Mrfr, name: str) -> Mrc | Mrfr:
    objective.name = name
    return objective


@pytest.fixture
def classes(sequences: list[Sequence]) -> list[Sequence]:
    """The sequences, with what a detector says of their regions."""
    for i, sequence in enumerate(sequences):
        rng = np.random.default_rng(i)
        sequence.streams["image"] |= {"classes": rng.integers(4, size=5), "confidence": rng.random(5)}
    return sequences


def test_what_another_objective_hides_is_classified_by_its_head(
    classes: list[Sequence], corrupted: Callable, tiny: Callable[..., Network]
) -> None:
    """LXMERT predicts features and classes of the same rows, from one transformation."""
    hides, network = named(Mrfr(rate=0.4, tied=False), "mrfr"), tiny()
    mine, _ = corrupted(hides, classes)
    objects = named(Mrc(4, of="mrfr", weighted=True), "objects")
    assert objects.after == ("mrfr",)
    after, batch = corrupted(objects, mine)
    assert batch.targets["objects"].keys() == {"rows", "labels", "weights"}
    assert torch.equal(batch.targets["objects"]["rows"], batch.targets["mrfr"]["rows"])
    for left, right in zip(mine, after, strict=True):
        assert np.array_equal(left.streams["image"]["taken"], right.streams["image"]["taken"]), "it hides nothing more"
    torch.manual_seed(0)
    heads = {"mrfr": hides.head(network), "objects": objects.head(network)}
    forward = ForwardPass({"main": network}, {"main": batch})
    for name, head in heads.items():
        output = head(HeadInputs(forward, ViewKey("main", "main"), batch.targets[name], name))
        forward.outputs[name] = output.outputs
    rows = network(batch)["image"][batch.targets["mrfr"]["rows"]]
    logits = heads["objects"].output(heads["mrfr"].transform(rows))
    targets = batch.targets["objects"]
    wanted = sum(
        -float(w) * logits[i].log_softmax(-1)[label]
        for i, (label, w) in enumerate(zip(targets["labels"], targets["weights"], strict=True))
    )
    torch.testing.assert_close(output.loss, wanted, atol=1e-5, rtol=1e-5)


def test_classes_that_the_corpus_lacks_are_named(sequences: list[Sequence], corrupted: Callable) -> None:
    with pytest.raises(WorkbenchError, match=r"'mrc': the regions of '0' have no 'classes'.*prepare regions.*--scores"):
        corrupted(named(Mrc(4), "mrc"), sequences)


def test_a_class_beyond_their_number_is_named(classes: list[Sequence], corrupted: Callable) -> None:
    classes[0].streams["image"]["classes"][:] = 7
    with pytest.raises(WorkbenchError, match="'0' has the classes 7 to 7; allowed: 0 to 3"):
        corrupted(named(Mrc(4, rate=1.0), "mrc"), classes)


def test_it_can_be_learned(classes: list[Sequence], corrupted: Callable, tiny: Callable, learned: Callable) -> None:
    objective = named(Mrc(4), "mrc")
    _, batch = corrupted(objective, classes)
    assert learned(objective, tiny(), batch) < 0.8
