"""Rows that a projector fills: those of an image without the row of its whole (LLaVA 1.5, arXiv:2310.03744)."""

from __future__ import annotations

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Word
from workbench.sequences.protocols import Transform
from workbench.sequences.sequence import Rows, Sequence


class ProjectedTransform(Transform):
    """Rows that the layer `vision.projector` fills (LLaVA 1.5, arXiv:2310.03744, section 3.3): a stream with a row for
    each row of another one, by default without special rows such as the class token. No objective corrupts them.

    Args:
        stream: the name of the new stream; its embedding is `vision.projected`.
        of: the stream that is projected.
        special: whether special rows are projected too, as all learned queries are (BLIP-2, arXiv:2301.12597).

    Raises:
        WorkbenchError: a sequence has a stream of that name already.
    """

    def __init__(self, stream: Word = "projected", of: Word = "image", special: bool = False) -> None:
        self.stream, self.of, self.special = stream, of, special

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        for sequence in sequences:
            if self.stream in sequence.streams:
                raise WorkbenchError(
                    f"sequence {sequence.key!r} has a stream {self.stream!r} already; choose another name for the "
                    "projected rows"
                )
            if length := sequence.length(self.of):
                left_out = sequence.fields(self.of).get("special", np.zeros(length, np.bool_)) & (not self.special)
                rows = np.flatnonzero(~left_out)
                sequence.streams[self.stream] = {
                    "input_ids": np.arange(len(rows)),
                    "of": Rows(self.of, rows, bound=True),
                    "special": np.ones(len(rows), np.bool_),
                }
        return sequences
