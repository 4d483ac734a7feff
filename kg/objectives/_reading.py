"""The inputs of objectives on marked mentions: the pooled output, the first row, the markers, or the entity tokens.

The markers are read by Soares et al., "Matching the Blanks", ACL 2019 (arXiv 1906.03158, section 3.3), and K-Adapter
(arXiv 2002.01808, section 4): of each mention the state of the marker that stands before it, one behind the other.
LUKE (arXiv 2010.01057, section 4) reads those of the entity tokens that stand for the mentions (`kg.entity_tokens`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.sequences.marked_text import marker_before
from workbench.sequences.sequence import Rows, Sequence

if TYPE_CHECKING:  # the command line reads `Reading`, without torch
    from torch import Tensor

    from workbench.pretraining.forward import HeadInputs

Reading = Literal["pooled", "first", "markers", "entities"]
ROWS = "read_rows"


def as_option(reading: Reading) -> dict[str, str]:
    """The options `read` and `stream` of a fine-tuning objective."""
    return {"read": reading, "stream": "entity" if reading == "entities" else "text"}


def by_mention(reading: Reading) -> bool:
    """Whether each mention has a row of its own that is read (`rows_to_read`)."""
    return reading in ("markers", "entities")


def rows_to_read(reading: Reading, sequence: Sequence, names: tuple[str, ...], stream: str) -> Rows:
    """The rows of a stream that stand for marked stretches [names].

    Raises:
        WorkbenchError: no entity token stands for one.
    """
    return (marker_rows if reading == "markers" else entity_rows)(sequence, names, stream)


def entity_rows(sequence: Sequence, names: tuple[str, ...], stream: str) -> Rows:
    """The entity tokens of these stretches [names]; of one that was cut away the first that is there.

    Raises:
        WorkbenchError: no stretch has one, as if the transform that adds them is missing.
    """
    marked = {mark.name: mark.start for mark in sequence.marks if mark.stream == stream}
    if not marked.keys() & {*names}:
        raise WorkbenchError(
            f"sequence {sequence.key!r} has no entity token for {' or '.join(map(repr, names))} in the stream "
            f"{stream!r}: add the transform kg.entity_tokens with marks: true, or raise a max_length that cuts "
            f"mentions away"
        )
    first = min(marked.values())
    return Rows(stream, np.array([marked.get(name, first) for name in names], np.int64))


def marker_rows(sequence: Sequence, names: tuple[str, ...], stream: str) -> Rows:
    """The rows of the markers before these stretches [names]; of one that was cut away the sequence's first row."""
    starts = {mark.name: mark.start for mark in sequence.marks if mark.stream == stream}
    found = [marker_before(sequence.streams[stream], starts.get(name, 0)) for name in names]
    return Rows(stream, np.array([row or 0 for row in found], np.int64))


def read(reading: Reading, inputs: HeadInputs, stream: str) -> Tensor:
    """[sequences, width of the states, times the number of mentions where these are read].

    For mentions the targets have `read_rows`: those of each sequence, one sequence after the other.
    """
    if reading == "pooled":
        return inputs.network.pool(inputs.states, inputs.batch, stream)
    if reading == "first":
        return inputs.network.summary_rows(inputs.states, inputs.batch, stream)
    return inputs.states[stream][inputs.targets[ROWS]].reshape(inputs.batch.size, -1)
