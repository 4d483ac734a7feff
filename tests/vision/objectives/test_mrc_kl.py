"""Masked region classification by distributions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from tests.contracts.cases import ObjectiveCase
from vision.objectives.mrc_kl import MrcKl
from workbench.core.errors import WorkbenchError
from workbench.sequences.sequence import Sequence


def originals(before: Sequence, after: Sequence, shared: Mapping[str, np.ndarray]) -> None:
    image, target = before.streams["image"], after.targets["it"]
    np.testing.assert_array_equal(target["scores"], image["scores"][target["rows"].index])


CASE = ObjectiveCase({"rate": 0.4, "num_classes": 3}, reads=("image",), recover=originals)


def kl(classes: int = 4) -> MrcKl:
    objective = MrcKl(classes)
    objective.name = "kl"
    return objective


@pytest.fixture
def scored(sequences: list[Sequence]) -> list[Sequence]:
    for i, sequence in enumerate(sequences):
        scores = np.random.default_rng(i).dirichlet(np.ones(4), 5).astype(np.float16)
        sequence.streams["image"]["scores"] = scores
    return sequences


def test_a_distribution_over_other_classes_is_refused(scored: list[Sequence], corrupted: Callable) -> None:
    with pytest.raises(WorkbenchError, match=r"'0' has the distributions \(5, 4\) of its regions; expected 9 classes"):
        corrupted(kl(9), scored)


def test_distributions_that_the_corpus_lacks_are_named(sequences: list[Sequence], corrupted: Callable) -> None:
    with pytest.raises(WorkbenchError, match=r"'kl': the regions of '0' have no 'scores'.*--scores"):
        corrupted(kl(), sequences)


def test_it_can_be_learned(scored: list[Sequence], corrupted: Callable, tiny: Callable, learned: Callable) -> None:
    _, batch = corrupted(kl(), scored)
    assert "scores" not in batch.streams["image"].fields, "those of the hidden rows are enough"
    assert learned(kl(), tiny(), batch) < 0.8
