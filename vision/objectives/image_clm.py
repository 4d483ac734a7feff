"""Causal language modelling of a text that the other objectives of its task read in both directions (BLIP-2,
arXiv:2301.12597; BLIP, arXiv:2201.12086).

    L = - sum over i of log p(x_{i+1} | x_1..x_i, the image)

A token sees those up to itself and all rows of other streams, and these do not see the text (the multimodal causal
mask). The first token may be another one, which says that the text is to be written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Role, Word
from workbench.objectives._text import TextContinuation
from workbench.objectives._token_head import PLAIN, HeadOptions
from workbench.objectives.clm import Clm
from workbench.pretraining.objective import BatchTargets, Continuation
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from workbench.sequences.builder import Builder


class ImageClm(Clm):
    """Causal language modelling of captions next to objectives that read them in both directions (BLIP-2,
    arXiv:2301.12597, section 3.1: image-grounded text generation). Give it a view of its own.

    Args:
        begin: role of the token in the place of the first one; null: it stays.
        stream: the stream of the text.
        head: {tied, bias, transform} of the head, as for `clm`.

    Raises:
        WorkbenchError: the builder's sequences are read in one direction already.
    """

    def __init__(
        self, tokenizer: Tokenizer, begin: Role | None = None, stream: Word = "text", head: HeadOptions = PLAIN
    ) -> None:
        super().__init__(stream, head)
        self.begin = None if begin is None else tokenizer.id(begin)

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        for sequence in sequences:
            if "rank" in sequence.fields(self.stream):
                raise WorkbenchError(
                    f"objective {self.name!r}: sequence {sequence.key!r} is read in one direction already; use clm, or "
                    "give the builder `visibility: bidirectional`"
                )
            written(sequence, self.stream, self.begin)
        return super().corrupt(sequences, draws)

    def continuation(self, builder: Builder) -> Continuation:
        return ImageContinuation(builder, self.stream, self.begin)


class ImageContinuation(TextContinuation):
    """A text that no other row sees, behind the token that says it is to be written."""

    def __init__(self, builder: Builder, stream: str, begin: int | None) -> None:
        super().__init__(builder.frame, stream, "causal")
        self.begin = begin

    def prompt(self, sequence: Sequence) -> None:
        written(sequence, self.stream, self.begin)
        super().prompt(sequence)


def written(sequence: Sequence, stream: str, begin: int | None) -> None:
    """Let each row of a text see those up to itself, and no row of another stream the text, behind a first token."""
    text = sequence.fields(stream)
    text["rank"] = np.arange(1, len(text["input_ids"]) + 1)
    if begin is not None:
        text["input_ids"] = np.concatenate([[begin], text["input_ids"][1:]])
