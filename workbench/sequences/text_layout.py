"""Laying out segments of tokens as one text stream, [CLS] a [SEP] b [SEP], and cutting long texts into segments."""

from __future__ import annotations

from collections.abc import Sequence as Listing
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import MinLen

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Positive
from workbench.sequences.sequence import Fields, Span, text_fields
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


class Frame:
    """The special tokens around segments, one before the first, one after each; and the rows that each row sees.

    Args:
        tokenizer: the source of their ids.
        begin, end: roles (cls, sep, bos, eos), or None for no token there.
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
    ) -> tuple[Fields, list[int]]:
        """The text stream of the segments, and the row at which each begins.

        A segment's tokens and the special token after it have its type. Word numbers continue from segment to segment;
        they are those of a segmenter where the tokenizer has one.
        Behind a prefix the token that ends the last segment is not `special`: it may be hidden as any other, so that a
        network learns where to stop (UniLM, arXiv:1905.03197, section 2.5).

        Args:
            types: by default those of the visibility.
            visibility: where it is not the frame's own.
        """
        seen = visibility or self.visibility
        types = types or self.types(seen)
        ids: list[Any] = [np.array(self.begin, np.int64)]
        words: list[Any] = [np.full(len(self.begin), -1)]
        starts: list[Any] = [words[0]]
        ends: list[Any] = [words[0]]
        kinds: list[Any] = [np.full(len(self.begin), types[0], np.int64)]
        special: list[Any] = [np.ones(len(self.begin), np.bool_)]
        rows, row, word = [], len(self.begin), 0
        closing = np.full(len(self.end), -1)
        for segment, kind in zip(segments, types, strict=False):
            rows.append(row)
            ids += [segment.ids, self.end]
            numbers = segment.words if segment.segmenter else segment.pretokens
            words += [np.where(numbers < 0, -1, numbers + word), closing]
            starts += [segment.starts, closing]
            ends += [segment.ends, closing]
            kinds.append(np.full(len(segment) + len(self.end), kind, np.int64))
            special += [np.zeros(len(segment), np.bool_), np.ones(len(self.end), np.bool_)]
            row += len(segment) + len(self.end)
            word += int(numbers.max(initial=-1)) + 1
        columns = [np.concatenate(column) for column in (ids, kinds, words, special, starts, ends)]
        names = ("token_type_ids", "word_ids", "special", "char_start", "char_end")
        stream = text_fields(columns[0].astype(np.int64), **dict(zip(names, columns[1:], strict=True)))
        if seen != "bidirectional":
            stream["rank"] = ranks(seen, len(columns[0]), rows)
        if seen == "prefix" and len(rows) > 1:  # the end of a target is learned too, or no generated text would end
            stream["special"][len(columns[0]) - len(self.end) :] = False
        return stream, rows


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
