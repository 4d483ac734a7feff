"""Operations that take, insert and drop rows of a stream; all references to its rows follow.

Noises that change lengths (T5's spans, BART's infilling and permutation) and transforms that inject tokens (K-BERT) use
these operations, so that none of them has to know the other contents of a sequence. These follow the rows:

    the stream's own fields     an entry each
    spans, mask_spans, marks    while their rows stay together and in order; rows inserted between them are included
    Rows in fields              of all streams; a link to a removed row becomes -1, or its own row is removed (`bound`)
    Rows in targets             an objective labels rows that nobody removes after it (`taken`)

Positions and ranks keep their values; `recount` renumbers them.

Transforms call these for every sample, and the arrays of a sentence are small: methods of arrays (`rows.nonzero()`)
cost a fraction of the functions that numpy wraps around them in Python (`np.flatnonzero(rows)`, `np.full`,
`np.argsort`).
"""

from __future__ import annotations

from collections.abc import Sequence as Listing
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from workbench.sequences.sequence import Fields, Mark, Rows, Sequence, Span

NEW = -1
_OF_NEW: dict[str, Any] = {
    "word_ids": -1,
    "char_start": -1,
    "char_end": -1,
    "special": False,
    "taken": True,
    "everywhere": 0,
}
Stretch = TypeVar("Stretch", Span, Mark)


def take(sequence: Sequence, rows: Any, stream: str = "text", *, like: np.ndarray | None = None, **values: Any) -> None:
    """Replace the rows of a stream with these rows of its own, in this order, in place.

    Args:
        rows: [n] numbers of its rows, each at most once, or `NEW` for new rows.
        like: [new rows] the row that each new one resembles in the fields for which `values` has nothing; by default
            the next one that is taken, or else the last. New rows have no word and no character, have no links,
            are not `everywhere`, and are `taken`, so that no objective labels them.
        values: fields of the new rows, [new rows] each or one value for all.

    Raises:
        ValueError: rows that do not exist or occur twice, fields that do not exist or have no entry a row, or an
            objective has labelled a row that is left out.
    """
    rows = np.asarray(rows, np.int64)
    place = _places(rows, sequence.length(stream))
    fields = rows_of(sequence.streams[stream], rows, like=like, **values)
    _check_labelled(sequence, stream, place)
    _arrange(sequence, stream, fields, place, rows)


def insert(
    sequence: Sequence, before: Any, stream: str = "text", *, like: np.ndarray | None = None, **values: Any
) -> np.ndarray:
    """Insert new rows in a stream, in place; returns their numbers [new rows].

    Args:
        before: [new rows] the row before which each is put, the stream's length for its end; new rows before one row
            have the order given.
        like, values: as for `take`, in the order given (arrays).
    """
    before = np.asarray(before, np.int64)
    length = sequence.length(stream)
    order = before.argsort(kind="stable")
    places = before[order] + np.arange(len(before))
    new = np.zeros(length + len(before), np.bool_)
    new[places] = True
    place = (~new).nonzero()[0]
    rows = np.empty(len(new), np.int64)
    rows[places] = NEW
    rows[place] = np.arange(length)
    given = {name: value[order] if isinstance(value, np.ndarray) else value for name, value in values.items()}
    fields = rows_of(sequence.streams[stream], rows, like=None if like is None else like[order], **given)
    _arrange(sequence, stream, fields, place)
    where = np.empty(len(before), np.int64)
    where[order] = places
    return where


def insert_behind(
    sequences: Listing[Sequence], last: np.ndarray, stream: str = "text", **values: np.ndarray
) -> list[np.ndarray]:
    """Insert new rows in a stream of several sequences, in place; returns the numbers of the new rows of each [rows].

    It does the work of `insert` for all sequences at once: their arrays are small, and become stretches of one.

    Args:
        last: [new rows] the row behind which each is put, which it resembles in the fields for which `values` has
            nothing; counted through all sequences in their order, never falling.
        values: as for `take`, in the order given (arrays).
    """
    ends = np.cumsum([sequence.length(stream) for sequence in sequences], dtype=np.int64)
    where = last + np.arange(1, len(last) + 1)
    new = np.zeros((int(ends[-1]) if len(ends) else 0) + len(last), np.bool_)
    new[where] = True
    cuts = (ends + np.searchsorted(last, ends)).tolist()
    stretches = list(zip([0, *cuts], cuts, strict=False))
    if _alike_fields(sequences, stream):
        _insert_joined(sequences, stream, last, where, stretches, values)
    else:
        for sequence, old, stretch in zip(sequences, [0, *ends.tolist()], stretches, strict=False):
            own = slice(*np.searchsorted(where, stretch))
            given = {name: value[own] for name, value in values.items()}
            insert(sequence, last[own] - old + 1, stream, like=last[own] - old, **given)
    return [new[begin:end] for begin, end in stretches]


def drop(sequence: Sequence, rows: np.ndarray, stream: str = "text") -> None:
    """Remove rows of a stream, in place (`take`): their numbers, or a mask [rows of the stream]."""
    kept = np.ones(sequence.length(stream), np.bool_)
    kept[rows] = False
    take(sequence, np.flatnonzero(kept), stream)


def replace_spans(sequence: Sequence, spans: Listing[tuple[int, int]], stream: str = "text", **values: Any) -> None:
    """Replace each stretch of rows [start, end) with one new row, in place (`take`).

    Args:
        spans: in their order, without overlaps; an empty one gets its row before `start`.
        values: as for `take`; a new row resembles the first of its span in all other fields.
    """
    length, kept, pieces = sequence.length(stream), 0, []
    for start, end in spans:
        pieces += [np.arange(kept, start), [NEW]]
        kept = end
    like = np.minimum([start for start, _ in spans], length - 1)
    take(sequence, np.concatenate([*pieces, np.arange(kept, length)]), stream, like=like, **values)


def rows_of(fields: Fields, rows: Any, *, like: np.ndarray | None = None, **values: Any) -> Fields:
    """The fields of these rows of a stream, as another stream (a decoder's): `take` without references to the rows.

    A row may occur several times.
    """
    rows = np.asarray(rows, np.int64)
    new = (rows < 0).nonzero()[0]
    source = rows
    if len(new):
        source = rows.copy()
        source[new] = _alike(rows, new) if like is None else like
    unknown = values.keys() - fields.keys()
    if unknown:
        raise ValueError(f"the stream has no field {sorted(unknown)[0]!r}; it has {', '.join(sorted(fields))}")
    if len(set(map(len, fields.values()))) > 1:
        sizes = ", ".join(f"{name}: {len(value)}" for name, value in fields.items())
        raise ValueError(f"rows can be taken of streams whose fields have an entry a row; found {sizes}")
    made: Fields = {}
    for name, value in fields.items():
        linked = isinstance(value, Rows)
        found = _at(value.index if linked else value, source)
        if len(new):
            filling = values.get(name, NEW if linked else _OF_NEW.get(name))
            if filling is not None:
                found[new] = filling
        made[name] = Rows(value.stream, found, value.bound) if linked else found
    return made


def recount(sequence: Sequence, stream: str = "text") -> None:
    """Renumber `position_ids` from 0 in each document, and `rank` where the stream has it, in place.

    Rows of rank 0 (a prefix, a first row) keep it; the others count up from 1 in their order. Where the first row has a
    greater rank than the last one (`anticausal`), ranks count down to 0.
    """
    fields = sequence.streams[stream]
    length = sequence.length(stream)
    doc = fields.get("doc", np.zeros(length, np.int64))
    starts = np.flatnonzero(np.diff(doc, prepend=doc[:1] - 1))
    sizes = np.diff(np.append(starts, length))
    fields["position_ids"] = np.arange(length, dtype=np.int64) - np.repeat(starts, sizes)
    if "rank" in fields:
        later = fields["rank"] > 0
        counted = np.cumsum(later)
        before = np.repeat((counted - later)[starts], sizes)
        upward = np.where(later, counted - before, 0)
        falling = np.repeat(fields["rank"][starts] > fields["rank"][starts + sizes - 1], sizes)
        downward = np.repeat(sizes, sizes) - 1 - fields["position_ids"]
        fields["rank"] = np.where(falling, downward, upward).astype(np.int64)


def _alike_fields(sequences: Listing[Sequence], stream: str) -> bool:
    """Whether a stream has the same fields in all sequences, arrays of one kind each with an entry a row."""
    kinds = set()
    for sequence in sequences:
        fields, length = sequence.streams[stream], sequence.length(stream)
        if not all(isinstance(value, np.ndarray) and len(value) == length for value in fields.values()):
            return False
        kinds.add(tuple((name, value.dtype, value.shape[1:]) for name, value in fields.items()))
    return len(kinds) == 1


def _insert_joined(
    sequences: Listing[Sequence],
    stream: str,
    last: np.ndarray,
    where: np.ndarray,
    stretches: Listing[tuple[int, int]],
    values: dict[str, np.ndarray],
) -> None:
    """`insert_behind` for sequences with the same fields: new rows at `where` in their joined arrays, cut at
    `stretches`."""
    old = np.ones(stretches[-1][1], np.bool_)
    old[where] = False
    place = old.nonzero()[0]
    source = np.empty(len(old), np.int64)
    source[place], source[where] = np.arange(len(place)), last
    streams = [sequence.streams[stream] for sequence in sequences]
    made: list[Fields] = [{} for _ in sequences]
    for name in streams[0]:
        joined = np.concatenate([fields[name] for fields in streams])[source]
        filling = values.get(name, _OF_NEW.get(name))
        if filling is not None:
            joined[where] = filling
        for fields, (begin, end) in zip(made, stretches, strict=True):
            fields[name] = joined[begin:end]
    row = 0
    for sequence, fields, (begin, _) in zip(sequences, made, stretches, strict=True):
        until = row + sequence.length(stream)
        _arrange(sequence, stream, fields, place[row:until] - begin)
        row = until


def _places(rows: np.ndarray, length: int) -> np.ndarray:
    """The new number of each of the `length` old rows; -1 for those left out."""
    where = (rows >= 0).nonzero()[0]
    kept = rows[where]
    place = np.empty(length, np.int64)
    place.fill(-1)
    try:
        place[kept] = where
    except IndexError:
        raise ValueError(f"row {kept.max()} of a stream with {length}") from None
    if np.count_nonzero(place >= 0) < len(kept):
        raise ValueError(f"row {np.bincount(kept).argmax()} is taken twice")
    return place


def _alike(rows: np.ndarray, new: np.ndarray) -> np.ndarray:
    """For each new row, at the places `new`, the old one that follows it, or else the last."""
    old = np.flatnonzero(rows >= 0)
    if not len(old):
        return np.zeros(len(new), np.int64)
    following = np.searchsorted(old, new).clip(max=len(old) - 1)
    return rows[old[following]]


def _at(value: np.ndarray, source: np.ndarray) -> np.ndarray:
    """The entries of these rows; zeros where there is none that a row could resemble."""
    return value[source] if len(value) else np.zeros((len(source), *value.shape[1:]), value.dtype)


def _arrange(
    sequence: Sequence, stream: str, fields: Fields, place: np.ndarray, rows: np.ndarray | None = None
) -> None:
    """Set the fields of a stream, and update all references to its rows.

    Args:
        place: [old rows] the new number of each, or -1.
        rows: as for `take`; None where all rows stay in their order.
    """
    sequence.streams[stream] = fields
    if sequence.spans or sequence.mask_spans or sequence.marks:
        places = place.tolist()
        parts = [0] * len(places) if rows is None else _segments_of(rows, place)
        sequence.spans = _moved_numbers(sequence.spans, stream, places, parts)
        sequence.mask_spans = _moved_numbers(sequence.mask_spans, stream, places, parts)
        sequence.marks = _moved_numbers(sequence.marks, stream, places, parts)
    for targets in sequence.targets.values():
        for name, value in targets.items():
            if isinstance(value, Rows) and value.stream == stream:
                targets[name] = _followed_numbers(value, place)
    _follow(sequence, stream, place)


def _segments_of(rows: np.ndarray, place: np.ndarray) -> list[int]:
    """A number for each old row, the same for those that are consecutive, except for new ones between them."""
    kept = rows[rows >= 0]
    ordinal = np.full(len(place), -2, np.int64)
    ordinal[kept] = np.arange(len(kept))
    return [0, *(ordinal[1:] != ordinal[:-1] + 1).cumsum().tolist()]


def _moved_numbers(stretches: Listing[Stretch], stream: str, place: list[int], parts: list[int]) -> list[Stretch]:
    """The stretches in the new rows, without those whose rows are removed or separated; other streams' are
    unchanged."""
    moved = []
    for s in stretches:
        if s.stream != stream:
            moved.append(s)
        elif place[s.end - 1] >= 0 and parts[s.end - 1] == parts[s.start]:
            moved.append(s.at(place[s.start], place[s.end - 1] + 1))
    return moved


def _followed_numbers(link: Rows, place: np.ndarray) -> Rows:
    return replace(link, index=np.where(link.index >= 0, place[link.index], -1) if len(place) else link.index)


def _follow(sequence: Sequence, stream: str, place: np.ndarray) -> None:
    """Update the links of all streams to the rows of one; rows bound to a removed row are removed too."""
    for name, fields in list(sequence.streams.items()):
        gone: np.ndarray | None = None
        for field, link in fields.items():
            if isinstance(link, Rows) and link.stream == stream:
                fields[field] = _followed_numbers(link, place)
                if link.bound:
                    lost = (fields[field].index < 0) & (link.index >= 0)
                    gone = lost if gone is None else gone | lost
        if gone is not None and gone.any():
            drop(sequence, np.flatnonzero(gone), name)


def _check_labelled(sequence: Sequence, stream: str, place: np.ndarray) -> None:
    for objective, targets in sequence.targets.items():
        for value in targets.values():
            if isinstance(value, Rows) and value.stream == stream:
                lost = value.index[(place[value.index] < 0) & (value.index >= 0)]
                if len(lost):
                    raise ValueError(
                        f"row {lost[0]} of the stream {stream!r} is labelled by the objective {objective!r} and cannot "
                        "be left out; rows that are `taken` stay"
                    )
