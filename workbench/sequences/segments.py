"""Splitting a sample's text in two segments that follow each other, for sentence pairs (nsp, sop).

A pair has its first segment in `text`, `spans`, `mask_spans` and its second in `second`, `second_spans`,
`second_mask_spans`, as in stored pairs. In one that was split here `follows` says whether the second followed the first
in the text.

Also the sentence ends of a stream, from the tokens alone: for noises that move or mask whole sentences. And windows of
tokens over a long text, which overlap, so that text which one of them cuts is whole in another.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from workbench.sequences.sequence import Fields, Sample
from workbench.text.sentences import SENTENCE_END
from workbench.text.tokenizer import Encoding, Tokenizer

_FIELDS = ("spans", "mask_spans")
NEIGHBOURS = "neighbours"
"""The label with the texts before and behind a sentence."""
_SECOND = {"text": "second", **{field: f"second_{field}" for field in _FIELDS}}


def in_two(sample: Sample, drawn: float) -> Sample:
    """The sample split at the sentence end that a number from [0, 1) draws, never inside a mention: both segments are
    of whole sentences, as in the published code of BERT and ALBERT.

    Returns the same sample where it is a pair already, or has no two sentences.
    """
    points = [] if "second" in sample else _points(sample)
    if not points:
        return sample
    return _pair(sample, 0, points[int(drawn * len(points))], len(sample["text"]))


def splits_at_sentence(text: str) -> bool:
    """Whether a sentence of a text ends before the text does."""
    return bool(_points({"text": text}))


def sentence_pairs(sample: Sample) -> list[Sample]:
    """The pairs of neighbouring sentences of a text, each a sample; the last of an odd number is added to the pair
    before it. The sample itself where it is a pair already, or has no two sentences."""
    points = [0, *_points(sample), len(sample.get("text", ""))]
    if "second" in sample or len(points) < 3:
        return [sample]
    begins = points[:-2:2]
    cuts, ends = points[1::2], [*begins[1:], points[-1]]
    draw = tuple(sample.get("draw", ()))
    pairs = zip(begins, cuts, ends, strict=False)
    return [{**_pair(sample, *places), "draw": (*draw, number)} for number, places in enumerate(pairs)]


def sentences_between(sample: Sample) -> list[Sample]:
    """The sentences of a text that have one before and one behind them, each a sample with the texts of these two as
    its label `NEIGHBOURS`. The sample itself where it is such a sentence or a pair, or has no three sentences."""
    edges = [0, *_points(sample), len(sample.get("text", ""))]
    if "second" in sample or NEIGHBOURS in sample.get("labels", {}) or len(edges) < 4:
        return [sample]
    draw, parts = tuple(sample.get("draw", ())), [between(sample, *edge) for edge in pairwise(edges)]
    return [
        {**labelled(sample, NEIGHBOURS, [before["text"], behind["text"]]), **part, "draw": (*draw, number)}
        for number, (before, part, behind) in enumerate(zip(parts, parts[1:], parts[2:], strict=False))
    ]


def in_parts(sample: Sample, drawn: list[float]) -> list[dict[str, Any]]:
    """The segments of a text that is cut at as many sentence ends as there are numbers from [0, 1), which draw them, or
    at all if it has fewer. Of a pair, and of a text of one sentence, the text alone."""
    points = [] if "second" in sample else _points(sample)
    cuts = sorted(points.pop(int(number * len(points))) for number in drawn[: len(points)])
    edges = [0, *cuts, len(sample.get("text", ""))]
    return [between(sample, *edge) for edge in pairwise(edges)]


def joined(segments: list[dict[str, Any]]) -> dict[str, Any]:
    """Segments one after another as one, with white space between them."""
    whole = dict(segments[0])
    for segment in segments[1:]:
        gap = "" if whole["text"][-1:].isspace() or segment["text"][:1].isspace() else " "
        moved = surrounded(segment, whole["text"] + gap, "")
        whole = {key: moved[key] if key == "text" else [*whole.get(key, ()), *moved[key]] for key in moved}
    return whole


def one_way(sample: Sample) -> bool:
    """Whether a mixture of visibilities has the text read from one end to the other (UniLM: as one segment)."""
    return sample.get("visibility") in ("causal", "anticausal")


def arrangeable(sample: Sample) -> bool:
    """Whether objectives may exchange the segments: not where a mixture has one follow from the other."""
    return sample.get("visibility", "bidirectional") == "bidirectional"


def segments_of(sample: Sample) -> list[dict[str, Any]]:
    """The segments of a sample, one or two, each with `text`, `spans` and `mask_spans`, as far as it has them."""
    first = {field: sample[field] for field in _SECOND if field in sample}
    second = {field: sample[name] for field, name in _SECOND.items() if name in sample}
    return [first, second] if "second" in sample else [first]


def with_second(sample: Sample, second: dict[str, Any]) -> Sample:
    """The pair with another second segment (an output of `segments_of`), which does not follow the first."""
    kept = {k: v for k, v in sample.items() if k not in _SECOND.values()}
    return {**kept, **{_SECOND[field]: value for field, value in second.items()}, "follows": False}


def swapped(sample: Sample) -> Sample:
    """The pair with its segments in the other order."""
    first, second = segments_of(sample)
    return with_second({k: v for k, v in sample.items() if k not in _SECOND} | second, first)


def _pair(sample: Sample, begin: int, cut: int, end: int) -> Sample:
    """The characters [begin, cut) of the sample's text, and [cut, end), which follow them."""
    pair = with_second({**sample, **between(sample, begin, cut)}, between(sample, cut, end))
    return {**pair, "follows": True}


def between(sample: Sample, begin: int, end: int) -> dict[str, Any]:
    """The segment of the characters [begin, end) of the sample's text."""
    segment: dict[str, Any] = {"text": sample["text"][begin:end]}
    for field in _FIELDS:
        if field in sample:
            inside = [m for m in sample[field] if m[0] >= begin and m[1] <= end]
            segment[field] = [[m[0] - begin, m[1] - begin, *m[2:]] for m in inside]
    return segment


def surrounded(segment: dict[str, Any], before: str, after: str) -> dict[str, Any]:
    """The segment with characters before and after its text."""
    by = len(before)
    moved = {field: [[m[0] + by, m[1] + by, *m[2:]] for m in segment[field]] for field in _FIELDS if field in segment}
    return {**moved, "text": before + segment["text"] + after}


def cut_longer(first: int, second: int, room: int) -> tuple[int, int]:
    """The numbers of tokens that two segments of these lengths lose, such that `room` tokens stay: first the longer
    one, then both alike, as if tokens were removed one by one from the longer (BERT's published code)."""
    excess = max(0, first + second - room)
    longer = min(excess, abs(first - second))
    cut_first = (longer if first > second else 0) + (excess - longer + 1) // 2
    return cut_first, excess - cut_first


def labelled(sample: Sample, name: str, label: Any) -> Sample:
    """A copy of the sample with one more label (-100: none)."""
    return {**sample, "labels": {**sample.get("labels", {}), name: label}}


def _points(sample: Sample) -> list[int]:
    """The sentence ends in the sample's text, without its own end, outside of mentions."""
    text = sample.get("text", "")
    mentions = [m for field in _FIELDS for m in sample.get(field, ())]
    points = [m.end() for m in SENTENCE_END.finditer(text)]
    return [p for p in points if text[:p].strip() and text[p:].strip() and not any(m[0] < p < m[1] for m in mentions)]


SPACED, UNSPACED = frozenset(".!?…"), frozenset("。！？")
_LONGEST = 4  # characters of a mark's token: a prefix, and as many bytes as a mark has


class SentenceEnds:
    """Sentences end at marks: full stops, question and exclamation marks before white space, so that "3.5" is none;
    those of Chinese and Japanese need no space."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        short = [i for token, i in tokenizer.vocabulary.items() if len(token) <= _LONGEST]
        marks = {i: tokenizer.decode([i]).strip().lstrip("#") for i in short}
        self.spaced = np.array(sorted(i for i, mark in marks.items() if mark in SPACED), np.int64)
        self.unspaced = np.array(sorted(i for i, mark in marks.items() if mark in UNSPACED), np.int64)

    def split(self, fields: Fields, rows: np.ndarray) -> list[np.ndarray]:
        """Neighbouring rows of a stream, sentence by sentence; none is empty."""
        if not len(rows):
            return []
        ids, after = fields["input_ids"][rows[:-1]], rows[1:]
        apart = fields["char_start"][after] > fields["char_end"][after - 1]
        return np.split(rows, np.flatnonzero(np.isin(ids, self.unspaced) | (np.isin(ids, self.spaced) & apart)) + 1)


def begins(length: int, room: int, stride: int) -> list[int]:
    """The beginnings of windows of `room` tokens that cover a text of `length`: the last one reaches its end."""
    found = [0]
    while found[-1] + room < length:
        found.append(found[-1] + min(stride, room))
    return found


def fullest(rows: np.ndarray, windows: list[tuple[int, int]], length: int) -> np.ndarray:
    """For each row the window [begin, end) in which the shorter of its two contexts is longest, by its index in
    `windows` (max context in BERT's published code). A context that reaches an end of the text is complete.

    Args:
        rows: [rows], ascending, each in some window.
        length: rows of the text.
    """
    begin, end = np.array(windows, np.int64).T[:, :, None]
    before = np.where(begin == 0, length, rows - begin)
    behind = np.where(end == length, length, end - 1 - rows)
    context = np.where((rows >= begin) & (rows < end), np.minimum(before, behind), -1)
    best: np.ndarray = context.argmax(axis=0)
    return best


def words_of(encoded: Encoding) -> tuple[np.ndarray, np.ndarray]:
    """A text's words: the first token of each [words], and its place in the text [words, 2].

    Several words of a tokenizer within a single character are one word; white space alone is none.
    """
    firsts: list[int] = []
    places: list[tuple[int, int]] = []
    seen = np.flatnonzero((encoded.pretokens >= 0) & (encoded.ends > encoded.starts))
    cuts = np.flatnonzero(np.diff(encoded.pretokens[seen])) + 1
    for tokens in np.split(seen, cuts) if len(seen) else ():
        start, end = int(encoded.starts[tokens].min()), int(encoded.ends[tokens].max())
        if not places or start >= places[-1][1]:
            firsts.append(int(tokens[0]))
            places.append((start, end))
        elif end > places[-1][1]:
            places[-1] = (places[-1][0], end)
    return np.array(firsts, np.int64), np.array(places, np.int64).reshape(-1, 2)
