"""A text in windows of which each predicts the tokens that those before it have not.

The rows of a text are its tokens and the special ones around them, as the run's builder frames a text. A window
predicts the row after each of its own; of these only what no window before has predicted counts. So every row is
predicted once, but for the first: it is given. A window that begins within the text has the special token before it
that a text begins with, where there is one, as the run's own sequences have.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from workbench.errors import WorkbenchError
from workbench.sequences.builders.document import Document
from workbench.sequences.sequence import Rows, Sequence
from workbench.text.tokenizer import Encoded


def room(builder: Document) -> int:
    """Rows of the text in a window within it."""
    return builder.max_length - len(builder.frame.begin)


def check_stride(stride: int | None, builder: Document) -> int:
    """How many rows a window predicts anew; by default as many as it has, but for the special token.

    Raises:
        WorkbenchError: more than that.
    """
    if stride is not None and stride > room(builder):
        raise WorkbenchError(
            f"--stride {stride}: a window has {room(builder)} rows of the text (the builder's max_length is "
            f"{builder.max_length}); say at most so many, or leave it out"
        )
    return stride or room(builder)


def windows_of(key: str, text: Encoded, builder: Document, stride: int, objective: str) -> Iterator[Sequence]:
    """The windows of a text as sequences, with `rows` and `labels` of what each predicts as the objective's targets."""
    whole, _ = builder.frame.lay([text])
    ids = whole["input_ids"]
    before, done, number = len(builder.frame.begin), 1, 0
    while done < len(ids):
        if number == 0:
            rows = np.arange(min(builder.max_length, len(ids) - 1))
        else:
            end = min(done + stride, len(ids)) - 1  # the last row that is to be read
            rows = np.concatenate([np.arange(before), np.arange(max(before, end - room(builder)), end)])
        read = np.flatnonzero(rows + 1 >= done)
        stream = {name: values[rows] for name, values in whole.items()}
        places = np.arange(len(rows), dtype=np.int64)
        stream |= {"position_ids": places, "rank": places.copy()}
        targets = {objective: {"rows": Rows("text", read), "labels": ids[rows[read] + 1]}}
        yield Sequence({"text": stream}, (number,), key, targets=targets)
        done, number = int(rows[-1]) + 2, number + 1
