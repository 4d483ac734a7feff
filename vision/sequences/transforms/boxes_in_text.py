"""References of words to boxes (B2T2, Alberti et al., arXiv:1908.05054).

    [CLS] [IMG] who is person1 talking to [SEP]
           whole        box 1

As in the published code a special token follows [CLS] and refers to the image as a whole. A mention refers to a box if
its linked entity is `region:N`, the N-th of the record's stored regions, from 0. The published code's mentions are one
token each; here all tokens of a mention refer to it.
"""

from __future__ import annotations

import numpy as np

from vision.sequences.region_targets import special_rows
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import CountOrZero, Role, Word
from workbench.sequences.protocols import CountingTransform
from workbench.sequences.rows import insert, recount
from workbench.sequences.sequence import Fields, Rows, Sequence
from workbench.text.tokenizer import Tokenizer

PREFIX = "region:"


class BoxesInTextTransform(CountingTransform):
    """References of words to boxes (B2T2, Alberti et al., arXiv:1908.05054). It adds a token for the image after the
    first token of a text. It links this token and the mentions to rows of the image (`box`).

    The image needs a row for its whole (`whole: first` of `vision.regions`). After itm exchanged the image, mentions
    refer to the regions of the same numbers. A text without an image gets no token.

    Args:
        token: role of the token that represents the image; no text has it, and words of a text never spell it.
        max_boxes: most boxes that the mentions of a text may refer to (the published code: 4), the first ones in their
        order. stream, image: of the words, and of the image's rows.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        token: Role = "pad",
        max_boxes: CountOrZero = 4,
        stream: Word = "text",
        image: Word = "image",
    ) -> None:
        super().__init__()
        self.id = tokenizer.id(token)
        self.max_boxes = max_boxes
        self.stream, self.image = stream, image

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        for sequence in sequences:
            box = np.full(sequence.length(self.stream), -1, np.int64)
            if sequence.length(self.image):
                image = sequence.fields(self.image)
                place = insert(sequence, [1], self.stream, input_ids=np.array([self.id]), special=True)
                recount(sequence, self.stream)
                box = np.full(sequence.length(self.stream), -1, np.int64)
                self._mentions(sequence, box, image)
                box[place] = self._whole(sequence, image)
            sequence.fields(self.stream)["box"] = Rows(self.image, box)
        return sequences

    def _whole(self, sequence: Sequence, image: Fields) -> int:
        whole = np.flatnonzero(special_rows(image))
        if not len(whole):
            raise WorkbenchError(
                f"transform vision.boxes_in_text: the image of {sequence.key!r} has no row for its whole; set "
                "`whole: first` for vision.regions"
            )
        return int(whole[0])

    def _mentions(self, sequence: Sequence, box: np.ndarray, image: Fields) -> None:
        parts = ~special_rows(image)
        numbers = image.get("number", np.cumsum(parts) - 1)
        row_of = {int(numbers[row]): int(row) for row in np.flatnonzero(parts)}
        referred: set[int] = set()
        for span in sorted(sequence.spans_of(self.stream), key=lambda s: (s.start, s.end)):
            number = _number(span.entity)
            if number is None:
                continue
            row = row_of.get(number)
            if row is None:
                self.dropped["mentions of regions that are not there"] += 1
            elif row not in referred and len(referred) == self.max_boxes:
                self.dropped["mentions over max_boxes"] += 1
            elif (box[span.start : span.end] >= 0).any():
                self.dropped["mentions within others"] += 1
            else:
                referred.add(row)
                box[span.start : span.end] = row
                self.used["mentions"] += 1


def _number(entity: str) -> int | None:
    """The N of `region:N`; None for other entities."""
    name = entity.removeprefix(PREFIX)
    return int(name) if name != entity and name.isdecimal() else None
