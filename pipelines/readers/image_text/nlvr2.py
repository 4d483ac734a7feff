"""NLVR2 (Suhr et al. 2019): is a sentence true of two photographs? JSON lines, images named by their identifier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.media import MediaReader, MediaRecord
from pipelines.readers.json_rows import SUFFIXES, row_records
from pipelines.readers.reader import Malformed, MalformedError, Match, Peek, parse_row, require
from pipelines.sources.files import record_key
from workbench.sequences.sequence import Sample

TRUTH = {"true": 1, "false": 0}


@dataclass(frozen=True)
class Nlvr2(MediaReader):
    """`media.left` and `media.right`, the sentence as a caption, `labels.label` 1 if it is true.

    With the identifier split-set-pair-sentence, `split-set-pair-img0.png` is the left image and `img1` the right one.
    All examples of a set of images go to the same split, as the authors advise.
    """

    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    @classmethod
    def detect(cls, source: Peek) -> Match:
        return cls.likely(source, {"identifier", "sentence"} <= source.row.keys())

    def described(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[MediaRecord]:
        for record in row_records(paths):
            with malformed:
                row = parse_row(record.data[2], record.where)
                identifier = require(row, "identifier", str, record.where)
                pair, _, _ = identifier.rpartition("-")
                if pair.count("-") < 2:
                    found = repr(identifier[:60])
                    raise MalformedError("identifier is not split-set-pair-sentence", record.where, found)
                places = {"left": f"{pair}-img0.png", "right": f"{pair}-img1.png"}
                yield MediaRecord(record_key(identifier), places, row, record.size, record.where)

    def content(self, row: dict[str, Any], where: str) -> Sample:
        identifier = row["identifier"]
        known: dict[str, Any] = {
            name: row[name] for name in ("left_url", "right_url", "synset", "query") if name in row
        }
        meta = {"id": identifier, "document": identifier.rsplit("-", 2)[0], **known}
        return {"captions": [require(row, "sentence", str, where)], **truth_of(row, where), "meta": meta}


def truth_of(row: dict[str, Any], where: str) -> Sample:
    """`labels` of a sentence that is true or false; empty for hidden test sets.

    Raises:
        MalformedError: it is neither.
    """
    if row.get("label") is None:
        return {}
    label = str(row["label"]).strip().lower()
    if label not in TRUTH:
        raise MalformedError("label is neither true nor false", where, repr(row["label"])[:60])
    return {"labels": {"label": TRUTH[label]}}
