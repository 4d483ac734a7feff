"""Part of speech and polarity of each token (SentiLR, arXiv:1911.02493), for an embedding with tables of them."""

from __future__ import annotations

import numpy as np

from kg.lexicons.sentiment_lexicon import NEUTRAL, OTHER, TAGS
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Name
from workbench.sequences.alignment import token_rows
from workbench.sequences.protocols import Transform
from workbench.sequences.sequence import Sequence

PART, POLARITY, LABEL = "part_of_speech_ids", "polarity_ids", "label_ids"


class SentimentTransform(Transform):
    """Parts of speech and polarities of tokens (SentiLR, arXiv:1911.02493). It writes the fields `part_of_speech_ids`,
    `polarity_ids` and `label_ids` of the text.

    All tokens of a word have what its tag says (`prepare sentiment`); other ones, those of a second text and special
    ones are of no part of speech and neutral. The label is unknown, the number `labels`: an objective may write it. The
    embedding reads them: `extra: {part_of_speech_ids: 5, polarity_ids: 3, label_ids: 6}`.

    Args:
        labels: how many labels a text may have.
        control: the recipe's; `no-kg` has every word without a part of speech and neutral, whatever its tag is.

    Raises:
        WorkbenchError: a text has no tags, or others.
    """

    controls = ("no-kg",)
    prepared_by = "workbench prepare sentiment CORPUS --lexicon FILE --output TAGGED"

    def __init__(self, labels: Count = 5, control: Name | None = None) -> None:
        self.labels = labels
        self.known = control != "no-kg"
        self.reads = ("tags",) if self.known else ()

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        for sequence in sequences:
            self._write(sequence)
        return sequences

    def _write(self, sequence: Sequence) -> None:
        text = sequence.fields("text")
        rows = len(text["input_ids"])
        parts, polarities = np.full(rows, OTHER), np.full(rows, NEUTRAL)
        placed = np.flatnonzero(text["char_start"] >= 0)
        kinds = text["token_type_ids"][placed]
        own = placed[kinds == kinds[:1]]  # a question before the text has no places in it
        tags = _tags(sequence) if self.known else []
        if len(own) and tags:
            begins, ends = (np.array([tag[place] for tag in tags]) for place in (0, 1))
            places = zip(*token_rows(text["char_start"][own], text["char_end"][own], begins, ends), tags, strict=True)
            for first, last, (_, _, name) in places:
                if name not in TAGS:
                    raise WorkbenchError(
                        f"sequence {sequence.key!r} has the tag {name!r}; allowed are those of `workbench prepare "
                        "sentiment`, such as a:negative: prepare the corpus with it"
                    )
                parts[own[first:last]], polarities[own[first:last]] = TAGS[name]
        text[PART], text[POLARITY] = parts, polarities
        text[LABEL] = np.full(rows, self.labels)


def _tags(sequence: Sequence) -> list[list[object]]:
    if "tags" not in sequence.meta:
        raise WorkbenchError(
            f"sequence {sequence.key!r} has no 'tags', the parts of speech and polarities of its words. Prepare the "
            f"corpus with `{SentimentTransform.prepared_by}`"
        )
    found: list[list[object]] = sequence.meta["tags"]
    return found
