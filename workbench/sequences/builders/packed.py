"""Packed documents: several texts of the micro-batch in one sequence.

Documents stay whole, or follow one another and are cut where a sequence is full. They are distinguished by `doc` and
never by positions, which restart in every document. Alternatively a token sees all of its sequence (RoBERTa's full
sentences, arXiv:1907.11692, section 4.2: windows of texts end at sentences) or all tokens before it, as GPT-2 and GPT-3
(arXiv:2005.14165, section B) read their contexts. As batches are jagged anyway, packing saves no padding. It yields
sequences of even length, on which some published set-ups train.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count
from workbench.sequences.builders.document import DocumentBuilder, DocumentOptions
from workbench.sequences.rows import recount, take
from workbench.sequences.sequence import Sample, Sequence
from workbench.sequences.text_layout import joined
from workbench.text.tokenizer import Tokenizer


class PackedBuilder(DocumentBuilder):
    """Packed documents: several texts of a micro-batch in one sequence of at most `max_length`. Documents are cut as in
    `document`, and packed first-fit, longest first.

    Documents of different languages are not packed together.

    Args:
        full: pack the documents in their order instead, each cut where a sequence is full: of a micro-batch all
            sequences but the last have `max_length` tokens.
        across: a token may see the other documents, positions continue, and only the first document has the begin token
            ([CLS] a [SEP] b [SEP]); by default each document sees itself alone.
        options: those of `document`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: Count,
        full: bool = False,
        across: bool = False,
        **options: Annotated[Any, DocumentOptions],
    ) -> None:
        super().__init__(tokenizer, max_length, **options)
        self.full, self.across = full, across

    def evaluating(self) -> DocumentBuilder:  # type: ignore[override]
        """Every document by itself: its result must not depend on the other documents of a micro-batch."""
        return DocumentBuilder.like(self)

    def __call__(self, samples: list[Sample], draws: Draws) -> list[Sequence]:
        labelled = next((s for s in samples if s.get("labels")), None)
        if labelled is not None:
            raise WorkbenchError(
                f"sample {labelled.get('key', '?')!r} has labels {sorted(labelled['labels'])}, which a packed "
                "sequence of several documents cannot have; use the builder document or sentence_pair"
            )
        alike: dict[tuple[str, ...], list[Sequence]] = {}
        for document in super().__call__(samples, draws):
            alike.setdefault(document.languages, []).append(document)
        begin = len(self.frame.begin) if self.across else None
        length = self.length_at(draws.progress)
        return [_joined(bin_, begin) for documents in alike.values() for bin_ in self._packed(documents, length)]

    def _packed(self, documents: list[Sequence], length: int) -> list[list[Sequence]]:
        if self.full:
            return _filled(documents, length)
        return [[documents[i] for i in bin_] for bin_ in _bins(documents, length)]


def _filled(documents: list[Sequence], size: int) -> list[list[Sequence]]:
    """The documents one after another, cut where `size` rows are full."""
    bins: list[list[Sequence]] = []
    room = 0
    for document in documents:
        begin, length = 0, document.length("text")
        while begin < length:
            if not room:
                bins.append([])
                room = size
            end = min(length, begin + room)
            bins[-1].append(_stretch(document, begin, end))
            room -= end - begin
            begin = end
    return bins


def _stretch(document: Sequence, begin: int, end: int) -> Sequence:
    """Some rows of a document, with positions and ranks of their own."""
    if end - begin == document.length("text"):
        return document
    part = document.copy()
    take(part, np.arange(begin, end))
    recount(part)
    return part


def _bins(documents: list[Sequence], size: int) -> list[list[int]]:
    """First-fit decreasing; inside a bin and between bins the order is that of the documents."""
    lengths = [document.length("text") for document in documents]
    bins: list[list[int]] = []
    room: list[int] = []
    for i in sorted(range(len(documents)), key=lambda i: (-lengths[i], i)):
        place = next((b for b, free in enumerate(room) if free >= lengths[i]), None)
        if place is None:
            bins.append([])
            room.append(size)
            place = len(bins) - 1
        bins[place].append(i)
        room[place] -= lengths[i]
    return sorted(sorted(b) for b in bins)


def _joined(documents: list[Sequence], begin: int | None) -> Sequence:
    """The documents as one sequence. If they see each other, all but the first lose their `begin` first rows."""
    cuts = [0] + [begin or 0] * (len(documents) - 1)
    streams = [
        {name: values[cut:] for name, values in document.streams["text"].items()}
        for document, cut in zip(documents, cuts, strict=True)
    ]
    lengths = [len(stream["input_ids"]) for stream in streams]
    text = joined(streams)
    if begin is not None:
        text |= {name: np.arange(sum(lengths)) for name in ("position_ids", "rank") if name in text}
    else:
        text["doc"] = np.repeat(np.arange(1, len(streams) + 1), lengths)
    starts = np.cumsum(lengths) - lengths
    spans, masks = [], []
    for start, document in zip((starts - cuts).tolist(), documents, strict=True):
        spans += [s.at(s.start + start, s.end + start) for s in document.spans]
        masks += [s.at(s.start + start, s.end + start) for s in document.mask_spans]
    keys = [{"key": document.key, "row": start} for document, start in zip(documents, starts.tolist(), strict=True)]
    first = documents[0]
    return Sequence(
        {"text": text},
        first.draw,
        first.key,
        spans,
        mask_spans=masks,
        languages=first.languages,
        meta={"documents": keys},
    )
