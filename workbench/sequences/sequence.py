"""Sequences: the output of a builder for a sample, before it is collated. They exist in the loader's workers (numpy
only).

A stream of a sequence is a dict of parallel arrays, one row per token. Fields of the `text` stream:

    input_ids        int64   token ids
    token_type_ids   int64   segment (0 or 1)
    position_ids     int64   position (soft positions repeat)
    word_ids         int64   number of the word a token belongs to, -1 for special tokens   (worker only)
    special          bool    added by the builder ([CLS], [SEP], ...), never corrupted; not the end behind a prefix
                                                                                              (worker only)
    char_start, char_end  int64  half-open span in the sample's text, -1 where there is none  (worker only)
    taken            bool    already labelled by an objective, or an injected token           (worker only)
    block_ids        int64   place in the blank that a token fills, from 1, 0 for none (the objective blank_filling)
    doc, rank, until, branch, anchor, everywhere  int64  the visibility integers; a missing one is 0 in all rows

The `entity` stream has `entity_ids` (row of the entity table, 0 = none) and `token` (`Rows` of the text stream: the row
of its mention). A stream of mentions has `token` and `last` (the rows of the text at which each begins and ends), one
of candidates `entity_ids`, `mention` (the row of the mention), `prior`, and `right` (int64: 1 for the right entity, 0
for another, -1 where it is unknown; worker only). The `image` stream has one of `features`, `patches` or `pixels`, and
`boxes`, `masked`; for a detector's regions also the detector's stored outputs: `classes`, `confidence`, `attributes`,
`attribute_confidence`, `scores` (worker only).

A field is an array with an entry a row, or `Rows`, which name rows of a stream and follow them: when rows are taken,
inserted or dropped (`workbench.sequences.rows`), and when sequences become a batch.

A batch holds texts as arrays of code points, since a held-out pass gathers tensors: for objectives that measure an
answer or a continuation.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from workbench.core.errors import unknown
from workbench.core.keyed import Draw

if TYPE_CHECKING:
    from torch import Tensor

Sample = dict[str, Any]
Fields = dict[str, Any]  # numpy arrays and Rows
SIBLINGS = "siblings"  # key of a sample that is an element of a record's list (a caption): the whole list

WORKER_FIELDS = frozenset(
    {"word_ids", "special", "char_start", "char_end", "taken", "right"}
    | {"classes", "confidence", "attributes", "attribute_confidence", "scores", "number"}
)


class Slot(NamedTuple):
    """The slot of a sample or sequence where texts are read on: one of the texts that a lane reads in parallel.

    It `continues` where it follows the text at the slot in the lane's micro-batch before.
    """

    number: int
    continues: bool


@dataclass
class Span:
    """A mention of an entity: rows [start, end) of a stream, the entity's id and the linker's score.

    `labels` are those that objectives assigned before there were rows (`Objective.arrange`), by their names.
    """

    start: int
    end: int
    entity: str
    score: float = 1.0
    stream: str = "text"
    labels: dict[str, int] = field(default_factory=dict)

    def at(self, start: int, end: int) -> Span:
        """The same mention in other rows of its stream."""
        return Span(start, end, self.entity, self.score, self.stream, self.labels)


@dataclass
class Mark:
    """A stretch with a role (head, tail, mention, answer, ...): rows [start, end) of a stream."""

    name: str
    start: int
    end: int
    stream: str = "text"

    def at(self, start: int, end: int) -> Mark:
        """The same stretch in other rows of its stream."""
        return Mark(self.name, start, end, self.stream)


@dataclass
class Rows:
    """Numbers of rows of one stream [n]: in a field (a link for each row of its stream), or in an objective's targets.

    -1 is no row. A row whose link is `bound` is removed with the row that it names (an entity with its token); the link
    of another one becomes -1.
    """

    stream: str
    index: np.ndarray
    bound: bool = False

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, chosen: Any) -> Rows:
        return replace(self, index=self.index[chosen])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.index, dtype=dtype) if copy else np.asarray(self.index, dtype=dtype)

    def copy(self) -> Rows:
        """A copy with an array of its own."""
        return replace(self, index=self.index.copy())


@dataclass
class Sequence:
    """One sequence: its streams, the stretches in them, its labels, and the targets of objectives.

    `spans` are mentions of entities, `marks` stretches with a role, `mask_spans` stretches that the masking strategy
    `field` masks as a whole. `group` is that of all sequences of one sample (its draw; () for a single one), `role` the
    role of this one in the sample (a choice). `languages` are those of its segments in their order, the last one's that
    of all after it; none where they are unknown. `meta` has entries of the sample that evaluation and transforms need
    (a question's answers, a mention's types, its tags); it never reaches the model.
    """

    streams: dict[str, Fields]
    draw: Draw
    key: str = ""
    spans: list[Span] = field(default_factory=list)
    labels: dict[str, Any] = field(default_factory=dict)
    targets: dict[str, dict[str, np.ndarray | Rows]] = field(default_factory=dict)
    mask_spans: list[Span] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    role: str = ""
    group: Draw = ()
    languages: tuple[str, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)

    def length(self, stream: str) -> int:
        """Number of rows of a stream; 0 where the sequence does not have it."""
        fields = self.streams.get(stream)
        return row_count(fields) if fields else 0

    def fields(self, stream: str) -> Fields:
        """The fields of a stream that an objective or a transform changes.

        Raises:
            WorkbenchError: the sequence does not have it.
        """
        if stream not in self.streams:
            raise unknown("stream", stream, self.streams, f"sequence {self.key!r}, after its builder and transforms")
        return self.streams[stream]

    def spans_of(self, stream: str) -> list[Span]:
        """The mentions in a stream."""
        return [span for span in self.spans if span.stream == stream]

    def alone(self, stream: str) -> Sequence:
        """The same sequence with one stream, the streams that its rows are bound to (`Rows.bound`; the image of a
        pooling query), and the streams bound to theirs. Links to others become -1."""
        kept, owners = set[str](), {stream} & self.streams.keys()
        while owners - kept:
            kept |= owners
            owners = {v.stream for n in kept for v in self.streams[n].values() if isinstance(v, Rows) and v.bound}
            owners &= self.streams.keys()
        while more := {
            n for n, f in self.streams.items() if n not in kept and any(_hangs(v, kept) for v in f.values())
        }:
            kept |= more
        return replace(self, streams={name: _among(kept, self.streams[name]) for name in self.streams if name in kept})

    def copy(self) -> Sequence:
        """A copy with arrays, lists and labels of its own, for hooks of another view to change."""
        return replace(
            self,
            streams={name: {k: v.copy() for k, v in fields.items()} for name, fields in self.streams.items()},
            spans=list(self.spans),
            labels=dict(self.labels),
            targets=copy.deepcopy(self.targets),
            mask_spans=list(self.mask_spans),
            marks=list(self.marks),
            meta=dict(self.meta),
        )


def _hangs(value: Any, streams: set[str]) -> bool:
    return isinstance(value, Rows) and value.bound and value.stream in streams


def _among(streams: set[str], fields: Fields) -> Fields:
    """The fields of a stream without its links to others than these."""
    return {
        name: replace(value, index=np.full_like(value.index, -1))
        if isinstance(value, Rows) and value.stream not in streams
        else value
        for name, value in fields.items()
    }


def row_count(fields: Fields) -> int:
    """Rows of a stream. `pixels` is per image; the number of its `boxes` is that of the backbone's rows."""
    for name in ("input_ids", "entity_ids", "token", "boxes", "features", "patches"):
        if name in fields:
            return len(fields[name])
    raise ValueError(f"a stream needs input_ids, entity_ids, token, boxes, features or patches; found {sorted(fields)}")


def text_fields(
    input_ids: np.ndarray,
    *,
    token_type_ids: np.ndarray | None = None,
    word_ids: np.ndarray | None = None,
    special: np.ndarray | None = None,
    char_start: np.ndarray | None = None,
    char_end: np.ndarray | None = None,
) -> Fields:
    """A complete text stream from its ids: positions count up, everything else defaults to plain text."""
    n = len(input_ids)

    def whole(value: np.ndarray | None, default: int, dtype: type = np.int64) -> np.ndarray:
        return np.full(n, default, dtype) if value is None else np.asarray(value, dtype)

    return {
        "input_ids": np.asarray(input_ids, np.int64),
        "token_type_ids": whole(token_type_ids, 0),
        "position_ids": np.arange(n, dtype=np.int64),
        "word_ids": np.arange(n, dtype=np.int64) if word_ids is None else np.asarray(word_ids, np.int64),
        "special": whole(special, 0, np.bool_),
        "char_start": whole(char_start, -1),
        "char_end": whole(char_end, -1),
        "taken": np.zeros(n, np.bool_),
    }


TEXT_FIELDS = tuple(text_fields(np.zeros(0, np.int64)))


def code_points(text: str) -> np.ndarray:
    """[characters] int32."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.int32).copy()


def texts_of(points: Tensor, lengths: Iterable[int]) -> list[str]:
    """The texts that are stored one after the other in `points`, with these numbers of characters."""
    whole = "".join(map(chr, points.tolist()))
    sizes = list(lengths)
    return [whole[end - size : end] for end, size in zip(accumulate(sizes), sizes, strict=True)]
