"""E-BERT's input: mentions with, or as, a row that stands for their entity.

Poerner, Waltinger and Schütze, "E-BERT: Efficient-Yet-Effective Entity Embeddings for BERT", Findings of EMNLP 2020
(arXiv 1911.03681), section 3.2. Of the mention "Jean Marais" become

    concat    Jean_Marais / jean mara ##is
    replace   Jean_Marais

The embedding `kg.word_or_entity` uses the entity's vector for its row. All other rows are read as usual.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from kg.sequences.table_transform import TableTransform
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, CountOrZero, Location, Name, Share, Word
from workbench.sequences.rows import insert, recount, replace_spans
from workbench.sequences.sequence import Mark, Sequence, Span
from workbench.text.tokenizer import Tokenizer

FIELD = "entity_ids"
Stretch = TypeVar("Stretch", Span, Mark)


@dataclass(frozen=True)
class EntityMention:
    """Rows [start, end) of a mention, and the number of its entity: the row of its vector + 1."""

    start: int
    end: int
    number: int


class EntityWordsTransform(TableTransform):
    """Entity tokens in the text of E-BERT (Poerner et al., arXiv:1911.03681). A row for the entity goes before each
    linked mention, with a separator between them, or replaces the mention.

    The stream gets the field `entity_ids`: r + 1 at the row of an entity whose vector is row r of the table, or else 0.
    Rows that are put in are `taken`: no objective labels them. Positions are counted anew.

    A mention in a stretch that `Sequence.mask_spans` names stays as it is: its vector would reveal what is to be
    predicted. `take_dropped` says by reason what was left out; of mentions that overlap the first counts, of equal
    starts the longer.

    Args:
        table: the file of the vectors.
        max_length: rows of the longest sequence; mentions from the last one on stay as they are where there would be
            more. By default the builder's.
        form: `concat`, or `replace`.
        separator: what stands between an entity and its mention; a single token of the vocabulary.
        min_score: of mentions with a linker's score, those above it count.
        stream: of the text.
        control: the recipe's; `no-kg` leaves all mentions as they are; under `mentions-only` all
            entities have the vector of the table's first one.
    """

    def __init__(
        self,
        table: Location | Mapping[Name, CountOrZero],
        tokenizer: Tokenizer,
        max_length: Count,
        form: Literal["concat", "replace"] = "concat",
        separator: Name = "/",
        min_score: Share = 0.0,
        stream: Word = "text",
        control: Name | None = None,
    ) -> None:
        super().__init__(table, min_score, control)
        self.max_length, self.form, self.stream = max_length, form, stream
        self.entity_stream = stream
        self.unknown = tokenizer.id("unk") if tokenizer.has("unk") else tokenizer.id("mask")
        self.separator = _single(separator, tokenizer)

    def add(self, sequence: Sequence) -> None:
        """The entities, as rows of the text's own stream."""
        length = sequence.length(self.stream)
        sequence.fields(self.stream)[FIELD] = np.zeros(length, np.int64)
        mentions = self._fitting(self._mentions(sequence), self.max_length - length) if self.linked else []
        if mentions:
            (self._concat if self.form == "concat" else self._replace)(sequence, mentions)
            recount(sequence, self.stream)

    def _mentions(self, sequence: Sequence) -> list[EntityMention]:
        found: list[EntityMention] = []
        for span in sorted(sequence.spans_of(self.stream), key=lambda s: (s.start, -s.end)):
            row = self.row_of(span, sequence)
            if row is None:
                continue
            if found and span.start < found[-1].end:
                self.dropped["overlapping mentions"] += 1
            else:
                found.append(EntityMention(span.start, span.end, row + 1))
        return found

    def _fitting(self, mentions: list[EntityMention], room: int) -> list[EntityMention]:
        """The first mentions, as many as there is room for."""
        kept = len(mentions)
        if self.form == "concat":
            kept = min(kept, max(0, room // 2))
            self.dropped["mentions over max_length"] += len(mentions) - kept
        self.used["mentions"] += kept
        return mentions[:kept]

    def _concat(self, sequence: Sequence, mentions: Ordered[EntityMention]) -> None:
        starts = np.array([mention.start for mention in mentions], np.int64).repeat(2)
        numbers = np.zeros(len(starts), np.int64)
        numbers[::2] = [mention.number for mention in mentions]
        tokens = np.where(numbers > 0, self.unknown, self.separator)
        insert(sequence, starts, self.stream, like=starts, input_ids=tokens, **{FIELD: numbers})

    def _replace(self, sequence: Sequence, mentions: Ordered[EntityMention]) -> None:
        numbers = np.array([mention.number for mention in mentions], np.int64)
        kept = np.ones(sequence.length(self.stream), np.int64)
        for mention in mentions:
            kept[mention.start + 1 : mention.end] = 0
        place = (kept.cumsum() - 1).tolist()  # of each old row; all of a mention have its new one
        spans, marks = self._moved(sequence.spans, place), self._moved(sequence.marks, place)
        places = [(mention.start, mention.end) for mention in mentions]
        replace_spans(sequence, places, self.stream, input_ids=self.unknown, **{FIELD: numbers})
        sequence.spans, sequence.marks = spans, marks  # which lose the stretches whose rows are gone

    def _moved(self, stretches: Ordered[Stretch], place: list[int]) -> list[Stretch]:
        own = (stretch.stream == self.stream for stretch in stretches)
        return [s.at(place[s.start], place[s.end - 1] + 1) if o else s for s, o in zip(stretches, own, strict=True)]


def _single(separator: str, tokenizer: Tokenizer) -> int:
    """The token of the separator.

    Raises:
        WorkbenchError: it is none of the vocabulary, or several.
    """
    ids = tokenizer.encode(separator).ids
    if len(ids) != 1 or (tokenizer.has("unk") and int(ids[0]) == tokenizer.id("unk")):
        raise WorkbenchError(
            f"the separator {separator!r} is no single token of the vocabulary; choose one that is, such as '/' or '-'"
        )
    return int(ids[0])
