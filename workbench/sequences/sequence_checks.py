"""Checks of the return values of components that make sequences or choose from them.

Integer fields of a stream are rows of a network's tables (positions, segments, ...), which must exist. On a GPU a
number beyond its table causes no message, so it is checked on the CPU: in the loader's workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from workbench.components.calls import Returns, all_are, value_in_words
from workbench.core.errors import WorkbenchError
from workbench.sequences.selection import RowGroups, column
from workbench.sequences.sequence import TEXT_FIELDS, Mark, Rows, Sequence, Span


def _are_groups(found: Any, sequences: list[Sequence], stream: str, *_: Any) -> bool:
    return isinstance(found, RowGroups) and not _bad_rows(found, sequences, stream)


def _bad_rows(groups: RowGroups, sequences: list[Sequence], stream: str) -> str:
    """The error in the rows of the stream that a masking strategy chose, in words; "" where they are valid."""
    rows, sizes, of = groups.rows, groups.sizes, groups.of
    if rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
        return f"rows as {value_in_words(rows)}"
    if sizes.shape != of.shape or sizes.sum() != len(rows) or (sizes < 0).any() or (np.diff(of) < 0).any():
        return f"{len(rows)} rows in groups of {sizes.tolist()[:4]}, ... of the sequences {of.tolist()[:4]}, ..."
    lengths = np.array([sequence.length(stream) for sequence in sequences], np.int64)
    outside = (of < 0) | (of >= len(lengths))
    if outside.any():
        return f"rows of sequence {of[outside][0]} of {len(lengths)}"
    own, ends = np.repeat(of, sizes), np.cumsum(lengths)
    outside = (rows < (ends - lengths)[own]) | (rows >= ends[own])
    if outside.any():
        there = own[outside][0]
        return f"row {rows[outside][0] - (ends - lengths)[there]} of the stream {stream!r} with {lengths[there]}"
    fields = [sequence.streams[stream] for sequence in sequences]
    often = np.bincount(rows.astype(np.int64), minlength=int(lengths.sum()))
    special, taken = column(fields, "special"), column(fields, "taken")
    for words, bad in ("twice", often > 1), ("special", often * special), ("taken", often * taken):
        if bad.any():
            there = int(np.searchsorted(ends, bad.argmax(), side="right"))
            return f"row {bad.argmax() - (ends - lengths)[there]}, {'which is ' * (words != 'twice')}{words}"
    return ""


def _groups_in_words(found: Any, sequences: list[Sequence], stream: str, *_: Any) -> str:
    return _bad_rows(found, sequences, stream) if isinstance(found, RowGroups) else value_in_words(found)


def noised_rows(vocab_size: int) -> Returns:
    """The contract of a noise: it returns None, and leaves a whole stream with ids below `vocab_size`."""

    def left(sequence: Sequence, stream: str, *_: Any) -> str:
        return _bad_stream(sequence, stream, vocab_size) or _beyond(sequence, stream)

    return Returns(
        f"None, and a stream changed in place (workbench.sequences.rows): ids from 0 to {vocab_size - 1}, an entry "
        "of each field for every row, and nothing that names another row",
        lambda found, *arguments: found is None and not left(*arguments),
        lambda found, *arguments: f"None and left {left(*arguments)}" if found is None else value_in_words(found),
        kind=type(None),
    )


def _bad_stream(sequence: Sequence, stream: str, vocab_size: int) -> str:
    """The error in the fields of a stream of tokens, in words."""
    fields = sequence.streams.get(stream, {})
    if lost := set(TEXT_FIELDS) - fields.keys():
        return f"the stream {stream!r} without {', '.join(sorted(lost))}"
    for name, field in fields.items():
        if not isinstance(field, np.ndarray | Rows):
            return f"{name} of the stream {stream!r} as {value_in_words(field)}"
    if len({len(field) for field in fields.values()}) > 1:
        return f"the stream {stream!r} with {', '.join(f'{len(field)} {name}' for name, field in fields.items())}"
    ids = fields["input_ids"]
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        return f"input_ids of the stream {stream!r} as {value_in_words(ids)}"
    outside = ids[(ids < 0) | (ids >= vocab_size)]
    return f"the token {outside[0]} in the stream {stream!r}" if len(outside) else ""


def _beyond(sequence: Sequence, stream: str) -> str:
    """A reference to a row that a stream does not have, in words."""
    size = sequence.length(stream)
    stretches: list[Span | Mark] = [*sequence.spans, *sequence.mask_spans, *sequence.marks]
    for stretch in stretches:
        if stretch.stream == stream and stretch.end > size:
            return f"a stretch up to row {stretch.end - 1} of the stream {stream!r} with {size}"
    named = {**{f"targets of {name}": of for name, of in sequence.targets.items()}, **sequence.streams}
    for owner, fields in named.items():
        for name, rows in fields.items():
            if isinstance(rows, Rows) and rows.stream == stream and rows.index.max(initial=-1) >= size:
                return f"row {rows.index.max()} of the stream {stream!r} with {size} in {name} of {owner}"
    return ""


SAMPLES = Returns("the list of samples", all_are(dict), kind=list)
SEQUENCES = Returns("a list of workbench.sequences.sequence.Sequence", all_are(Sequence), kind=list)
GROUPS = Returns(
    "workbench.sequences.selection.RowGroups, whose rows are counted through all sequences and neither special nor "
    "taken, each once",
    _are_groups,
    _groups_in_words,
    kind=RowGroups,
)
FIELDS = Returns("the fields of the image stream, a dict of arrays", kind=dict)


_KNOWN = {
    "input_ids": ("token", "vocab_size", "fix the component that writes it"),
    "position_ids": ("position", "max_positions", "shorten the max_length of the builder or of the transforms"),
    "block_ids": ("place in a blank", "block_positions", "cut shorter spans out"),
    "token_type_ids": (
        "segment",
        "token_types",
        "choose a builder of fewer segments, or 1 or 0 (none distinguished)",
    ),
}


def limit_of_types(types: int) -> int:
    """The limit of segments by the rows of their table: one row is shared by all segments, so there is no limit."""
    return types if types > 1 else 0


def check_limits(fields: Mapping[str, Any], limits: Mapping[str, int], who: str) -> None:
    """Compare the fields of a stream, arrays or tensors [rows], with the rows of the tables that read them.

    Args:
        limits: by field, the rows of its table; 0 where there is none.
        who: the owner of the numbers, for the message.

    Raises:
        WorkbenchError: a number is beyond its table, or below 0.
    """
    for name, limit in limits.items():
        found = fields.get(name)
        if not limit or found is None or not len(found):
            continue
        least, most = int(found.min()), int(found.max())
        if least >= 0 and most < limit:
            continue
        what, option, advice = _KNOWN.get(name, (name, f"extra.{name}", "fix the component that writes it"))
        raise WorkbenchError(
            f"{who} has {what} {most if least >= 0 else least}, but the network has {option} = {limit}: "
            f"{f'enlarge it, or {advice}' if least >= 0 else 'numbers count from 0'}"
        )
