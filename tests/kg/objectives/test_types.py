"""The objective `kg.types`; that it reads markers is tested in `test_reading.py`."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from kg.objectives.types import Types, TypesHead
from tests.contracts.cases import ObjectiveCase
from workbench.core.errors import WorkbenchError

NOT_MEANT = {"seed": "nothing is drawn", "originals": "no row is changed", "no labels": "every mention has types"}
CASES = {
    "": ObjectiveCase({"num_types": 3, "dropout": 0.0}, NOT_MEANT, labels=3, small=9),
    "groups": ObjectiveCase({"num_types": 3, "dropout": 0.0, "groups": [1, 2]}, NOT_MEANT, labels=1, small=3),
}


def cell(logit: float, gold: float) -> float:
    return math.log(1 + math.exp(-logit if gold else logit))


def test_a_group_counts_where_the_mention_has_a_type_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choi et al., section 4, in loops: five types in groups of two and three, the last mention with none at all."""
    logits = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[1, 0, 0, 1, 0], [0, 1, 0, 0, 0], [0, 0, 1, 1, 1], [0, 0, 0, 0, 0]], dtype=torch.float32)

    def given(head: TypesHead, seen: Any) -> Tensor:
        return logits

    monkeypatch.setattr(TypesHead, "logits", given)
    seen: Any = SimpleNamespace(targets={"labels": labels})
    found = TypesHead(8, 5, groups=[2, 3])(seen).loss
    wanted = 0.0
    for row, gold in zip(logits.tolist(), labels.tolist(), strict=True):
        for columns in (range(2), range(2, 5)):
            if any(gold[i] for i in columns):
                wanted += sum(cell(row[i], gold[i]) for i in columns) / len(columns)
    assert found.item() == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("groups", [[1, 1], [3, 1]])
def test_groups_hold_every_type_once(groups: list[int]) -> None:
    with pytest.raises(WorkbenchError, match="num_types = 3: give the size of every group"):
        Types(3, groups=groups)
