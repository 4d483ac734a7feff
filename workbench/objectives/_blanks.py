"""Spans that are cut out of a text and predicted after it, and how a network fills a blank (GLM)."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.models.embeddings.blank_token import FIELD
from workbench.pretraining.objective import Continuation
from workbench.sequences.rows import NEW, insert, take
from workbench.sequences.sequence import Sample, Sequence

GONE = NEW - 1


@dataclass(frozen=True)
class BlankFillings:
    """Moves spans of a stream behind it.

    Attributes:
        mask: the token that replaces a span.
        start, end: the tokens before a span where it is read, and after it where it is predicted.
    """

    stream: str
    mask: int
    start: int
    end: int

    def __call__(
        self, spans: list[np.ndarray], sequence: Sequence, written: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Cut spans out, in place, and append them in the order given.

        Args:
            spans: neighbouring rows of each; none may be empty.
            written: whether the spans are appended; otherwise they are dropped, and only the start of each is appended.

        Returns:
            the appended rows, and the token that each of them predicts [rows].
        """
        ids = sequence.fields(self.stream)["input_ids"].copy()
        firsts = np.array([span[0] for span in spans], np.int64)
        rest = np.arange(len(ids))
        for span in spans:
            rest[span] = GONE
        rest[firsts] = NEW
        rest = rest[rest != GONE]
        behind = [np.append(NEW, span if written else span[:0]) for span in spans]
        rows, like = np.concatenate([rest, *behind]), np.concatenate([np.sort(firsts), firsts])
        take(sequence, rows, self.stream, like=like, input_ids=np.repeat([self.mask, self.start], len(spans)))
        masks = np.flatnonzero(rest == NEW)[np.argsort(np.argsort(firsts))]
        fields, sizes, text = (
            sequence.fields(self.stream),
            [len(span) for span in behind],
            np.zeros(len(rest), np.int64),
        )
        fields["position_ids"] = np.concatenate([np.arange(len(rest)), np.repeat(masks, sizes)])
        fields["rank"] = np.concatenate([text, np.arange(1, sum(sizes) + 1)])
        fields[FIELD] = np.concatenate([text, *(np.arange(1, size + 1) for size in sizes)])
        fields["taken"][len(rest) :] = True
        labels = [np.append(ids[span], self.end) for span in spans]
        return np.arange(len(rest), len(rows)), np.concatenate([text[:0], *labels])


class BlankContinuation(Continuation):
    """Fills the blank of a prompt: where its text has the mask token, or the sample names a stretch to be masked
    (`mask_spans`); otherwise one at its end.

    Args:
        spelled: the mask token as a string.
        closing: the number of special tokens after a text.
    """

    counted = (FIELD, "rank")
    behind = False

    def __init__(self, filling: BlankFillings, spelled: str, closing: int) -> None:
        super().__init__(filling.stream, filling.end)
        self.filling, self.spelled, self.closing = filling, spelled, closing

    def arrange(self, sample: Sample) -> Sample:
        found = re.finditer(re.escape(self.spelled), str(sample.get("text", "")))
        blanks = [[blank.start(), blank.end(), "", 1.0] for blank in found]
        return {**sample, "mask_spans": blanks} if blanks else sample

    def prompt(self, sequence: Sequence) -> None:
        """Cut the blank out of a prompt.

        Raises:
            WorkbenchError: the prompt has several blanks.
        """
        blanks = [np.arange(s.start, s.end) for s in sequence.mask_spans if s.stream == self.stream]
        if len(blanks) > 1:
            raise WorkbenchError(
                f"prompt {sequence.key!r} has {len(blanks)} blanks; one is filled at a time: write the text of the "
                f"others, and {self.spelled} once"
            )
        if not blanks:
            blanks = [insert(sequence, [sequence.length(self.stream) - self.closing], self.stream)]
        self.filling(blanks, sequence, written=False)
