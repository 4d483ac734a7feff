"""The transform `task_type`: every token has the id of its task, and the table of tasks is read."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.contracts.cases import TransformCase
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.models.embeddings.token import TokenEmbedding
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence, text_fields
from workbench.sequences.transforms.task_type import TaskTypeTransform

CASE = TransformCase({"number": 2}, {"dropped": "nothing is left out"}, adds=("text.task_type_ids",))
DRAWS = Draws(0, "task", "transform", number=(0,))


def embedded(number: int) -> torch.Tensor:
    sequences = [Sequence({"text": text_fields(np.arange(n))}, (n,)) for n in (3, 1)]
    batch = collate(TaskTypeTransform(number)(sequences, DRAWS))
    torch.manual_seed(0)
    table = TokenEmbedding(8, 10, max_positions=4, extra={"task_type_ids": 3}, norm=None).eval()
    with torch.no_grad():
        return table(batch.streams["text"].fields) - table.extra["task_type_ids"].weight[number]


def test_the_row_of_the_task_is_added_to_every_token() -> None:
    torch.testing.assert_close(embedded(1), embedded(2))


def test_a_task_without_a_row_is_refused() -> None:
    with pytest.raises(WorkbenchError, match=r"task_type_ids 3, but the network has extra\.task_type_ids = 3"):
        embedded(3)
