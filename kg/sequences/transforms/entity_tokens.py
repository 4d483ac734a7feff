"""LUKE's entity tokens: a row for each linked mention next to the words, of an entity of the vocabulary.

Yamada et al., "LUKE", EMNLP 2020 (arXiv 2010.01057), section 3.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kg.sequences.entity_vocabulary import MASK, EntityVocabulary
from kg.sequences.linked_mentions import hidden
from kg.sequences.linked_transform import LinkedTransform, visibility_at
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Location, Name, Word
from workbench.sequences.entities import Entities
from workbench.sequences.sequence import Fields, Mark, Rows, Sequence


class _Token(NamedTuple):
    """An entity at the rows [start, end) of the text; of a marked stretch, its name."""

    start: int
    end: int
    entity: int
    mark: str = ""


class EntityTokensTransform(LinkedTransform):
    """Entity tokens of LUKE (Yamada et al., arXiv:2010.01057). The `entity` stream has a row for each mention of an
    entity in the vocabulary.

    A row has the segment (`token_type_ids`) of the mention's first token, the positions of the first and the last, and
    is read as late as the last. Left out and counted are entities that the vocabulary lacks, mentions in a stretch that
    is to be masked (`Sequence.mask_spans`), and further candidates for a mention.

    Args:
        vocabulary: file of `workbench prepare entity-vocabulary`.
        marks: a row for each marked stretch alone (`Sequence.marks`: mention, head, tail), whose entity is the mask:
            what the heads of fine-tuning read, which say so. The rows are marked in their turn. No control changes
            these: nothing of a graph is in them.
        tokens: the stream whose mentions are read.
        stream: the one that is made.
        control: the recipe's: `no-kg` links no mention; under `mentions-only` all entities are the mask, and none of
            these is predicted.
    """

    controls: tuple[str, ...] = ("no-kg", "mentions-only")

    def __init__(
        self,
        vocabulary: Location,
        marks: bool = False,
        tokens: Word = "text",
        stream: Word = "entity",
        control: Name | None = None,
    ) -> None:
        super().__init__()
        self.path = vocabulary
        self.vocabulary = EntityVocabulary.open(vocabulary)
        self.marks = marks
        self.reads_spans = not marks
        self.controls = () if marks else type(self).controls  # who marked a stretch did not say what it means
        self.tokens, self.stream = tokens, stream
        self.entity_stream = stream
        self.linked = control != "no-kg"
        self.alike = control == "mentions-only" and not marks

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "vocabulary"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.vocabulary = EntityVocabulary.open(self.path)  # instead of getting its ids sent

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        """The same sequences, each with an entity stream (possibly of no rows); nothing here is drawn."""
        for sequence in sequences:
            found = self._marked(sequence) if self.marks else self._linked(sequence)
            tokens = sorted(found, key=lambda token: (token.start, -token.end))
            sequence.streams[self.stream] = self._fields(sequence.fields(self.tokens), tokens)
            sequence.marks += [Mark(t.mark, row, row + 1, self.stream) for row, t in enumerate(tokens) if t.mark]
        return sequences

    def known_entities(self) -> Entities:
        return self.vocabulary.listed()

    def _marked(self, sequence: Sequence) -> list[_Token]:
        return [_Token(m.start, m.end, MASK, m.name) for m in sequence.marks if m.stream == self.tokens]

    def _linked(self, sequence: Sequence) -> list[_Token]:
        found: dict[tuple[int, int], _Token] = {}
        for span in sequence.spans_of(self.tokens) if self.linked else []:
            row = self.vocabulary.row(span.entity)
            if hidden(span, sequence):
                self.dropped["mentions to be masked"] += 1
            elif row is None:
                self.dropped["entities outside the vocabulary"] += 1
            elif (span.start, span.end) in found:
                self.dropped["further candidates for a mention"] += 1
            else:
                found[span.start, span.end] = _Token(span.start, span.end, MASK if self.alike else row)
        self.used["mentions"] += len(found)
        return list(found.values())

    def _fields(self, text: Fields, tokens: list[_Token]) -> Fields:
        first = np.array([token.start for token in tokens], np.int64)
        last = np.array([token.end - 1 for token in tokens], np.int64)
        return {
            "entity_ids": np.array([token.entity for token in tokens], np.int64),
            "token": Rows(self.tokens, first, bound=True),
            "position_ids": text["position_ids"][first],
            "last_position_ids": text["position_ids"][last],
            "token_type_ids": text["token_type_ids"][first],
            "word_ids": np.arange(len(tokens)),
            "special": np.zeros(len(tokens), np.bool_),
            "taken": np.full(len(tokens), self.alike),
            **visibility_at(text, last),
        }
