"""Masked region classification by distributions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.contracts.cases import ObjectiveCase
from vision.objectives.mrc_kl import MrcKl, MrcKlHead
from workbench.errors import WorkbenchError
from workbench.models.network import Network
from workbench.sequences.sequence import Sequence
from workbench.tasks.forward import Seen


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


def test_the_divergence_of_the_released_framework(shared: Path, tiny: Callable[..., Network]) -> None:
    folder = shared / "golden" / "volta" / "region_losses"
    inputs, outputs = load_file(folder / "inputs.safetensors"), load_file(folder / "outputs.safetensors")
    rows = inputs["image_label"] == 1
    head, network = Given(inputs["pred_class"][rows]), tiny()
    batch = None
    targets = {"rows": rows.nonzero()[:, 0], "scores": inputs["image_cls"][rows]}
    states = {"image": torch.zeros(100, 16)}
    loss = head(Seen.of(network, batch, targets, states)).loss / rows.sum()
    torch.testing.assert_close(loss, outputs["some.0.w1.0"], atol=1e-5, rtol=0)


class Given(MrcKlHead):
    """The head with logits of others."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__(16, 17)
        self.given = logits

    def logits(self, rows: torch.Tensor) -> torch.Tensor:
        return self.given


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
