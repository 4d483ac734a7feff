"""The base of permuted language models: an order of the tokens to be predicted, and the rows that predict them.

A sequence's factorisation order is its `rank`: rows that are not predicted have 0 and all rows see them; the tokens to
be predicted count up from 1 in their order. A row of the query stream is at the place of such a token with the rank
before it, so it sees all earlier tokens of the order, and not the token itself.
"""

from __future__ import annotations

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.sequences.rows import rows_of
from workbench.sequences.sequence import Fields, Rows, Sequence


def check_unordered(sequence: Sequence, text: Fields) -> None:
    """Refuse sequences whose builder has set an order.

    Raises:
        WorkbenchError: its rows see only those before them.
    """
    if "rank" in text:
        raise WorkbenchError(
            f"sequence {sequence.key!r} is read from left to right, and its tokens are to be predicted in a random "
            "order; give the builder `visibility: bidirectional`"
        )


def ask(sequence: Sequence, name: str, stream: str, query: str, rows: np.ndarray, ids: np.ndarray) -> None:
    """Make the query stream, a row for each of the `rows` of a stream whose `rank` is set, and the objective's targets.

    Args:
        name: of the objective.
        ids: the inputs of the query stream's embedding, for each row.
    """
    text = sequence.fields(stream)
    labels = text["input_ids"][rows].copy()
    asking = rows_of(text, rows)
    asking["input_ids"] = np.asarray(ids, np.int64)
    asking["rank"] = asking["rank"] - 1
    asking["taken"] = np.ones(len(rows), np.bool_)
    sequence.streams[query] = asking
    sequence.targets[name] = {"rows": Rows(query, np.arange(len(rows))), "labels": labels}
    text["taken"][rows] = True
