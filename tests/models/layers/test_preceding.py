"""The layer `preceding`, compared with its equation row by row."""

from __future__ import annotations

import pytest
import torch

from tests.contracts.cases import LayerCase
from tests.models.conftest import stream
from workbench.core.errors import WorkbenchError
from workbench.models.context import Context
from workbench.models.layers.preceding import PrecedingLayer
from workbench.sequences.batch import Batch

CASE = LayerCase({"stream": "text", "order": 3}, {"attention": "it attends to nothing"})
LENGTHS = [3, 0, 5, 1]


def test_a_row_is_that_of_the_equation() -> None:
    torch.manual_seed(0)
    made = PrecedingLayer("text", {"text": 4}, order=3)
    rows = torch.randn(9, 4)
    found = made({"text": rows}, Context(Batch({"text": stream(LENGTHS)})))["text"].split(LENGTHS)
    for given, got in zip(rows.split(LENGTHS), found, strict=True):
        padded = torch.cat([torch.zeros(2, 4), given])
        for row in range(len(given)):
            read = padded[[row + 2, row + 1, row]].flatten()
            torch.testing.assert_close(got[row], torch.tanh(made.linear.weight @ read + made.linear.bias))


def test_packed_texts_are_refused() -> None:
    made = PrecedingLayer("text", {"text": 4})
    batch = Batch({"text": stream([3], doc=torch.tensor([0, 0, 1]))})
    with pytest.raises(WorkbenchError, match="several texts are packed into a sequence of text, and a layer over"):
        made({"text": torch.randn(3, 4)}, Context(batch))


@pytest.mark.parametrize(("field", "said"), [("rank", "read from right to left"), ("branch", "hidden from others")])
def test_rows_that_it_must_not_read_are_refused(field: str, said: str) -> None:
    made = PrecedingLayer("text", {"text": 4})
    batch = Batch({"text": stream([3], **{field: torch.tensor([2, 1, 0])})})
    with pytest.raises(WorkbenchError, match=said):
        made({"text": torch.randn(3, 4)}, Context(batch))
