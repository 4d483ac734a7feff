"""The objective `regress`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.contracts.cases import ObjectiveCase
from tests.contracts.material import draws, tiny_network
from workbench.core.errors import WorkbenchError
from workbench.objectives.regression import Regression
from workbench.pretraining.forward import HeadInputs
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence, text_fields

CASE = ObjectiveCase(
    {"dropout": 0.0},
    {"originals": "no row is changed", "no labels": "a number that is not known is NaN, below"},
    sequence={"builder": "sentence_pair"},
)


def test_a_sequence_without_a_number_is_not_counted() -> None:
    objective = Regression(label="score")
    objective.name = "regress"
    text = {"text": text_fields(np.arange(3))}
    made = [Sequence(text, (0,)), Sequence(text, (1,), labels={"score": 2.5}), Sequence(text, (2,), "c", labels={})]  # type: ignore[dict-item]
    objective.corrupt(made, draws())
    batch = collate(made)
    assert objective.count(batch) == 1
    network = tiny_network("features")
    head = objective.head(network).eval()
    found = head(HeadInputs.of(network, batch, batch.targets["regress"]))
    value = head.regressor(network.pool(network(batch), batch, "text"))[1, 0]  # type: ignore[union-attr,operator]
    torch.testing.assert_close(found.loss, (value - 2.5) ** 2)
    found.loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in head.parameters())
    for wrong in ("high", float("nan"), float("inf")):
        made[2].labels = {"score": wrong}  # type: ignore[dict-item]
        with pytest.raises(WorkbenchError, match="label 'score' of sequence 'c'"):
            objective.corrupt(made, draws())
