"""KnowBERT's candidates: the mentions of a text, and the entities that each of them may mean.

Peters et al., "Knowledge Enhanced Contextual Word Representations", EMNLP 2019 (arXiv:1909.04164), section 3.1.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kg.sequences.linked_mentions import RIGHT
from kg.sequences.linked_transform import visibility_at
from kg.sequences.table_transform import TableTransform
from workbench.core.options.bounds import Count, CountOrZero, Location, Name, Share, Word
from workbench.sequences.sequence import Rows, Sequence, Span

UNKNOWN = -1  # nobody said whether the entity is the one that is meant


class CandidatesTransform(TableTransform):
    """Mentions and candidates of KnowBERT (Peters et al., arXiv:1909.04164). It makes two streams from a sequence's
    spans: a row for each mention, and a row for each candidate of it.

    Spans of the same rows are candidates of one mention (`prepare link --candidates`). Of a text that is linked to
    several graphs, those count whose entity has a vector in the table. A mention is in the stream `mentions` with its
    first and last token (`token`, `last`) and the visibility of its first one; its candidates are in `stream`, the best
    first, with the table's row (`entity_ids`, from 1), the linker's score (`prior`), and `right`: whether this is the
    entity that is meant, where the corpus says so (`prepare link --supervise`).

    Mentions in a stretch that `Sequence.mask_spans` names are left out: their entities would reveal what is to be
    predicted.

    Args:
        table: the file of entity vectors (`kg.vectors.vectors`) that the stream embeds, or the rows by entity.
        stream: the stream of the candidates, which the model embeds (`kg.entity_table`).
        mentions: the stream of the mentions, which needs no embedding.
        most: how many candidates of a mention count, the best.
        min_score: candidates need a score above it.
        tokens: the stream whose mentions are read.
        control: the recipe's; `no-kg` leaves all mentions out; under `mentions-only` all
            entities have the vector of the table's first one.
    """

    scored = "candidates"

    def __init__(
        self,
        table: Location | Mapping[Name, CountOrZero],
        stream: Word = "candidates",
        mentions: Word = "mentions",
        most: Count = 30,
        min_score: Share = 0.0,
        tokens: Word = "text",
        control: Name | None = None,
    ) -> None:
        super().__init__(table, min_score, control)
        self.stream, self.mentions, self.tokens = stream, mentions, tokens
        self.entity_stream = stream
        self.most = most

    def add(self, sequence: Sequence) -> None:
        """Both streams, possibly of no rows."""
        text = sequence.fields(self.tokens)
        found = self._found(sequence)
        self.used["mentions"] += len(found)
        places = np.array(list(found), np.int64).reshape(-1, 2)
        first, last = places[:, 0], places[:, 1] - 1
        sequence.streams[self.mentions] = {
            "token": Rows(self.tokens, first, bound=True),
            "last": Rows(self.tokens, last),
            **visibility_at(text, first),
        }
        listed = [(number, row, span) for number, of in enumerate(found.values()) for row, span in of]
        sequence.streams[self.stream] = {
            "entity_ids": np.array([row + 1 for _, row, _ in listed], np.int64),
            "mention": Rows(self.mentions, np.array([number for number, _, _ in listed], np.int64), bound=True),
            "prior": np.array([span.score for _, _, span in listed], np.float32),
            "right": np.array([span.labels.get(RIGHT, UNKNOWN) for _, _, span in listed], np.int64),
        }

    def _found(self, sequence: Sequence) -> dict[tuple[int, int], list[tuple[int, Span]]]:
        """By mention, in the order of the text, the table's rows of its candidates with their spans, the best first."""
        found: dict[tuple[int, int], list[tuple[int, Span]]] = {}
        spans = sequence.spans_of(self.tokens) if self.linked else []
        for span in sorted(spans, key=lambda span: (span.start, span.end, -span.score)):
            row = self.row_of(span, sequence)
            if row is None:
                continue
            if len(listed := found.setdefault((span.start, span.end), [])) == self.most:
                self.dropped["candidates beyond the most that count"] += 1
            else:
                listed.append((row, span))
        return found
