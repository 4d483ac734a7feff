"""What the objectives of permuted language models share: an order of the tokens to be predicted, and rows that ask for
them.

A sequence's factorisation order is its `rank`: what is not predicted is 0 and seen by all, the tokens to be predicted
count up from 1 in the order in which they are. A row of the query stream stands at such a token's place with the rank
before it, so it sees all that comes earlier in the order, and not the token itself.
"""

from __future__ import annotations

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.sequences.rows import rows_of
from workbench.sequences.sequence import Fields, Rows, Sequence


def check_unordered(sequence: Sequence, text: Fields) -> None:
    """Refuse sequences that the builder has given an order.

    Raises:
        WorkbenchError: its rows see those before them alone.
    """
    if "rank" in text:
        raise WorkbenchError(
            f"sequence {sequence.key!r} is read from left to right, and its tokens are to be predicted in an order "
            "that is drawn; give the builder `visibility: bidirectional`"
        )


def ask(sequence: Sequence, name: str, stream: str, query: str, rows: np.ndarray, ids: np.ndarray) -> None:
    """Make the query stream, a row for each of the `rows` of a stream whose `rank` is set, and the objective's targets.

    Args:
        name: of the objective.
        ids: what the embedding of the query stream reads, for each row.
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
