"""The task of a sequence at each of its tokens (ERNIE 2.0, arXiv:1907.12412, section 3.3: the task embedding)."""

from __future__ import annotations

import numpy as np

from workbench.core.keyed import Draws
from workbench.core.options.bounds import CountOrZero, Word
from workbench.sequences.protocols import Transform
from workbench.sequences.sequence import Sequence


class TaskTypeTransform(Transform):
    """Task ids of ERNIE 2.0 (arXiv:1907.12412, section 3.3). The embedding of the stream has a table for the field
    `task_type_ids`: `extra: {task_type_ids: 3}`.

    Args:
        number: of the task, from 0.
        stream: the stream of the tokens.
    """

    def __init__(self, number: CountOrZero = 0, stream: Word = "text") -> None:
        self.number, self.stream = number, stream

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        for sequence in sequences:
            rows = sequence.length(self.stream)
            sequence.fields(self.stream)["task_type_ids"] = np.full(rows, self.number, np.int64)
        return sequences
