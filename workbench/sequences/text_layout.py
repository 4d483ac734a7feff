"""Laying out segments of tokens as one text stream, [CLS] a [SEP] b [SEP], and cutting long texts into segments."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Listing
from typing import Annotated, Literal

import numpy as np
from annotated_types import MinLen

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Positive
from workbench.sequences.sequence import TEXT_FIELDS, Fields, Span
from workbench.text.tokenizer import Encoding, Tokenizer

Visibility = Literal["bidirectional", "causal", "anticausal", "prefix"]
VisibilityAlone = Literal["bidirectional", "causal", "anticausal"]
"""The visibilities of a text of one segment: no segment before it could be a prefix."""
Mixture = Annotated[dict[Visibility, Positive], MinLen(2)]
"""Visibilities that sequences have in turn, each with its weight."""

TYPES: dict[Visibility, tuple[int, int]] = {
    "bidirectional": (0, 1),
    "causal": (2, 2),
    "anticausal": (3, 3),
    "prefix": (4, 5),
}
"""Segment ids in a mixture: they also show the network the visibility of a sequence (UniLM, section 2.1, with the
numbers of its published code)."""

Layout = tuple[Listing[Encoding], Listing[int] | None, Visibility | None]
"""The segments of a sequence, their types, its visibility."""
LaidText = tuple[Fields, list[int]]
"""The text stream of a sequence, and the row at which each segment begins."""


class Frame:
    """The special tokens around segments, one before the first, one after each; and the rows that each row sees.

    Args:
        tokenizer: the source of their ids.
        begin, end: roles (cls, sep, bos, eos), or None for no token there.
        visibility: `bidirectional`: all rows; `causal`: the row itself and those before it; `anticausal`: itself and
            those after it; `prefix`: the last of several segments causally, and those before it in both directions
            (UniLM's sequence-to-sequence). Or a mixture of them, whose segments have the types `TYPES`.

    Attributes:
        visibility: of the sequences without one of their own: in a mixture `bidirectional`.
        mixture: the weights, empty where there is none.

    Raises:
        WorkbenchError: the tokenizer has no token of that role, or a mixture has no bidirectional sequences.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        begin: str | None = "cls",
        end: str | None = "sep",
        visibility: Visibility | Mixture = "bidirectional",
    ) -> None:
        self.roles = (begin, end)
        self.mixture: Mixture = {} if isinstance(visibility, str) else visibility
        self.visibility: Visibility = visibility if isinstance(visibility, str) else "bidirectional"
        if self.mixture and self.visibility not in self.mixture:
            raise WorkbenchError(
                f"visibility mixes {', '.join(self.mixture)}; a mixture must include bidirectional sequences, as texts "
                "are encoded in both directions; add it with a weight"
            )
        self.begin = [] if begin is None else [tokenizer.id(begin)]
        self.end = [] if end is None else [tokenizer.id(end)]

    def size(self, segments: int = 1) -> int:
        """The number of special tokens around this number of segments."""
        return len(self.begin) + segments * len(self.end)

    @property
    def visibilities(self) -> tuple[Visibility, ...]:
        """The visibilities that its sequences may have."""
        return tuple(self.mixture) or (self.visibility,)

    def types(self, visibility: Visibility) -> tuple[int, ...]:
        """The types of the segments of a sequence with this visibility."""
        return TYPES[visibility] if self.mixture else (0, 1)

    def lay(
        self,
        segments: Listing[Encoding],
        types: Listing[int] | None = None,
        visibility: Visibility | None = None,
    ) -> LaidText:
        """`lay_all` for the segments of one sequence."""
        return self.lay_all([(segments, types, visibility)])[0]

    def lay_all(self, texts: Iterable[Layout]) -> list[LaidText]:
        """The text stream of each sequence, and the row at which each of its segments begins.

        A segment's tokens and the special token after it have its type. Word numbers continue from segment to segment;
        they are those of a segmenter where the tokenizer has one.
        Behind a prefix the token that ends the last segment is not `special`: it may be hidden as any other, so that a
        network learns where to stop (UniLM, arXiv:1905.03197, section 2.5).
        The streams are stretches of the arrays of all, as an array costs more than the rows of one text.

        Args:
            texts: of each sequence its segments, their types (None: those of the visibility), and its visibility where
                it is not the frame's own.
        """
        begin, end = len(self.begin), len(self.end)
        segments: list[Encoding] = []
        kinds: list[tuple[int, int]] = []  # of each segment with the special tokens around it: type, rows
        first: list[bool] = []  # whether a segment is the first of its sequence
        seen: list[Visibility] = []
        rows: list[list[int]] = []
        bounds = [0]
        for own, types, visibility in texts:
            seen.append(visibility or self.visibility)
            types = types or self.types(seen[-1])
            begins: list[int] = []
            row = begin
            for segment, kind in zip(own, types, strict=False):
                size = len(segment.ids) + end
                kinds.append((kind, size if begins else size + begin))
                first.append(not begins)
                segments.append(segment)
                begins.append(row)
                row += size
            if not begins:
                kinds.append((types[0], begin))
            rows.append(begins)
            bounds.append(bounds[-1] + row)
        columns = self._columns(segments, np.array(first, np.bool_), rows, bounds)
        columns["token_type_ids"] = np.repeat(*np.array(kinds, np.int64).reshape(-1, 2).T)
        laid = []
        for visibility, begins, start, until in zip(seen, rows, bounds, bounds[1:], strict=False):
            stream = {name: columns[name][start:until] for name in TEXT_FIELDS}
            if visibility != "bidirectional":
                stream["rank"] = ranks(visibility, until - start, begins)
            if visibility == "prefix" and len(begins) > 1:  # an end is learned too, or no generated text would end
                stream["special"][until - start - end :] = False
            laid.append((stream, begins))
        return laid

    def _columns(
        self, segments: Listing[Encoding], first: np.ndarray, rows: Listing[Listing[int]], bounds: Listing[int]
    ) -> Fields:
        """The fields of all sequences [rows of all], but for their types.

        Args:
            segments, first: in order, and whether each is the first of its sequence.
            rows: of each sequence, the rows at which its segments begin.
            bounds: the rows at which sequences begin, and the number of all rows.
        """
        sizes = np.array([len(segment.ids) for segment in segments], np.int64)
        before = np.cumsum(sizes) - sizes
        begins = np.array([start + row for start, own in zip(bounds, rows, strict=False) for row in own], np.int64)
        tokens = np.arange(sizes.sum()) + np.repeat(begins - before, sizes)

        def column(parts: list[np.ndarray], fill: int) -> np.ndarray:
            values = np.full(bounds[-1], fill, np.int64)
            values[tokens] = np.concatenate(parts) if parts else 0
            return values

        ids = column([segment.ids for segment in segments], self.end[0] if self.end else 0)
        if self.begin:
            ids[bounds[:-1]] = self.begin[0]
        words = column([segment.words if segment.segmenter else segment.pretokens for segment in segments], -1)
        if not first.all():
            words[tokens] = _continued(words[tokens], sizes, first)
        special = np.ones(bounds[-1], np.bool_)
        special[tokens] = False
        return {
            "input_ids": ids,
            "position_ids": np.arange(bounds[-1]) - np.repeat(bounds[:-1], np.diff(bounds)),
            "word_ids": words,
            "special": special,
            "char_start": column([segment.starts for segment in segments], -1),
            "char_end": column([segment.ends for segment in segments], -1),
            "taken": np.zeros(bounds[-1], np.bool_),
        }


def _continued(words: np.ndarray, sizes: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Word numbers [tokens] that continue from segment to segment, and begin anew with each `first` one."""
    begins, filled = np.cumsum(sizes) - sizes, sizes > 0
    counts = np.zeros(len(sizes), np.int64)
    counts[filled] = 1 + np.maximum.reduceat(words, begins[filled])
    before = np.cumsum(counts) - counts
    before -= before[np.maximum.accumulate(np.where(first, np.arange(len(first)), 0))]
    return np.where(words < 0, -1, words + np.repeat(before, sizes))


def joined(streams: Listing[Fields]) -> Fields:
    """Text streams one after another: word numbers continue, positions begin anew with each."""
    counts = np.array([int(stream["word_ids"].max(initial=-1)) + 1 for stream in streams])
    shift = np.repeat(np.cumsum(counts) - counts, [len(stream["input_ids"]) for stream in streams])
    text = {name: np.concatenate([stream[name] for stream in streams]) for name in streams[0]}
    text["word_ids"] = np.where(text["word_ids"] < 0, -1, text["word_ids"] + shift)
    return text


def ranks(visibility: Visibility, length: int, begins: Listing[int]) -> np.ndarray:
    """The visibility integer `rank` [length] of rows whose segments begin at `begins`: a row sees ranks up to its own.

    `causal` counts from 0, `anticausal` down to 0; `prefix` is 0 up to the last of several segments, and counts from 1
    there.
    """
    places = np.arange(length, dtype=np.int64)
    if visibility == "causal":
        return places
    if visibility == "anticausal":
        return places[::-1].copy()
    prefix = begins[-1] if visibility == "prefix" and len(begins) > 1 else length
    return np.maximum(places - prefix + 1, 0)


def shifted(spans: Listing[Span], rows: int, begin: int = 0, end: int | None = None) -> list[Span]:
    """The spans that lie wholly in the rows [begin, end), moved by `rows - begin`."""
    return [
        s.at(s.start + rows - begin, s.end + rows - begin)
        for s in spans
        if s.start >= begin and (end is None or s.end <= end)
    ]


def cut_segments(encoded: Encoding, size: int, spans: Listing[Span]) -> list[tuple[int, int]]:
    """Consecutive token ranges of at most `size` that cover the text; one empty range for an empty text.

    A cut avoids words and mentions where a position in the second half of the range does.
    """
    total = len(encoded)
    parts: list[tuple[int, int]] = []
    begin = 0
    while total - begin > size:
        end = _cut(encoded.pretokens, begin, begin + size, spans)
        parts.append((begin, end))
        begin = end
    return [*parts, (begin, total)]


def _cut(words: np.ndarray, begin: int, latest: int, spans: Listing[Span]) -> int:
    end = latest
    while end > begin + (latest - begin) // 2:
        crossed = [s.start for s in spans if s.start < end < s.end]
        if crossed:
            end = min(crossed)
        elif words[end] >= 0 and words[end] == words[end - 1]:
            end -= 1
        else:
            return end
    return latest
