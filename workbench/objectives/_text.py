"""How a text continues, from left to right or behind a prefix, for the objectives that predict its tokens."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import WorkbenchError
from workbench.pretraining.objective import Continuation
from workbench.sequences.rows import drop
from workbench.sequences.sequence import Fields, Sample, Sequence
from workbench.sequences.text_layout import Frame, Visibility
from workbench.sequences.triple_text import TripleText


def check_one_way(sequence: Sequence, text: Fields) -> None:
    """Check that the rows of a text see no later ones.

    Raises:
        WorkbenchError: a row of the text sees those after it.
    """
    if "rank" not in text or (len(text["rank"]) and text["rank"][-1] < text["rank"][0]):
        raise WorkbenchError(
            f"sequence {sequence.key!r} is seen {'from right to left' if 'rank' in text else 'in both directions'}, so "
            "every token sees the one that it is to predict; give the builder `visibility: causal` (or `prefix`, where "
            "it has it)"
        )


class TextContinuation(Continuation):
    """A text continues where it ended; after a prefix the next segment follows.

    Args:
        frame: of the builder.
        visibility: `causal` or `prefix`, by default the frame's.
        pair: whether a text is the first segment of two, and the continuation is the second, as after a prefix.
        mask: a token at the place of the next one that predicts it (UniLM, arXiv:1905.03197, section 2.5); by default
            the row before predicts it.
    """

    def __init__(
        self,
        frame: Frame,
        stream: str,
        visibility: Visibility | None = None,
        mask: int | None = None,
        pair: bool = False,
    ) -> None:
        seen = visibility or frame.visibility
        super().__init__(stream, frame.end[0] if frame.end else None)
        self.visibility, self.pair = seen, pair or seen == "prefix"
        self.type = frame.types(seen)[-1]
        self.mask = mask

    def arrange(self, sample: Sample) -> Sample:
        return {**sample, "visibility": self.visibility}

    def prompt(self, sequence: Sequence) -> None:
        text = sequence.fields(self.stream)
        check_one_way(sequence, text)
        if self.pair:  # an existing second segment is generated anew
            drop(sequence, np.flatnonzero(text["token_type_ids"] == self.type), self.stream)
        elif self.end is not None:  # the builder has closed the text
            drop(sequence, np.array([len(text["input_ids"]) - 1]), self.stream)

    def next_rows(self, last: dict[str, Tensor], tokens: Tensor) -> dict[str, Tensor]:
        rows = super().next_rows(last, tokens)
        return {**rows, "token_type_ids": torch.full_like(tokens, self.type)} if self.pair else rows

    def asking_rows(self, last: dict[str, Tensor]) -> dict[str, Tensor] | None:
        return None if self.mask is None else self.next_rows(last, torch.full_like(last["input_ids"], self.mask))


class TripleContinuation(TextContinuation):
    """The tail of a triple follows its head and its relation.

    Args:
        builder: of the triples.
    """

    def __init__(self, builder: TripleText, stream: str) -> None:
        super().__init__(builder.frame, stream, pair=True)
        self.builder, self.type = builder, builder.types[-1]

    def arrange(self, sample: Sample) -> Sample:
        return super().arrange(self.builder.question(sample))

    def prompt(self, sequence: Sequence) -> None:
        check_one_way(sequence, sequence.fields(self.stream))
        drop(sequence, np.array([sequence.length(self.stream) - 1]), self.stream)  # the end of the empty tail
