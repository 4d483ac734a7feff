"""Sentences on one or more images, each true or false: SNLI-VE, ALBEF's and BLIP's lists, NLVR as JSON lines.

SNLI-VE (Xie et al. 2019)          Flickr30K_ID, sentence1 (the premise), sentence2, gold_label, pairID
ALBEF, BLIP: entailment, NLVR2     image or images, sentence, label
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipelines.readers.image_text.media import IMAGE, MediaReader, MediaRecord
from pipelines.readers.image_text.nlvr2 import TRUTH, truth_of
from pipelines.readers.json_rows import SUFFIXES, row_records
from pipelines.readers.reader import Drop, Malformed, MalformedError, Match, Peek, Record, parse_row, require
from pipelines.sources.files import record_key
from workbench.core.options.bounds import FileTemplate
from workbench.sequences.sequence import Sample

FLICKR = "Flickr30K_ID"
UNSURE = "-"
"""SNLI's label of a pair without agreement of the annotators."""
IDS = ("pairID", "identifier", "id", "question_id")


@dataclass(frozen=True)
class LabelledSentences(MediaReader):
    """A record for each sentence: it is the caption, `labels.label` its class, 1 and 0 for true and false.

    Two images are `media.left` and `media.right`. A pair without a gold label (SNLI's `-`) is dropped and counted.
    Records of the same image or images go to the same split. `image_name` makes the file name of
    an image of Flickr30k from its id.
    """

    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    image_name: FileTemplate = "{id}.jpg"

    @classmethod
    def detect(cls, source: Peek) -> Match:
        row = source.row.keys()
        snli = {FLICKR, "sentence2"} <= row
        return cls.likely(source, snli or ({"sentence", "label"} <= row and not {"image", "images"}.isdisjoint(row)))

    def described(self, paths: Sequence[Path], malformed: Malformed) -> Iterator[MediaRecord]:
        for record in row_records(paths):
            with malformed:
                row = parse_row(record.data[2], record.where)
                name = next((str(row[field]) for field in IDS if field in row), f"{record.data[0]}-{record.data[1]}")
                yield MediaRecord(record_key(name), self._places(row, record.where), row, record.size, record.where)

    def content(self, row: dict[str, Any], where: str) -> Sample:
        if FLICKR in row:
            known = {"premise": row.get("sentence1"), "id": row.get("pairID"), "document": str(row[FLICKR])}
            sentence, label = require(row, "sentence2", str, where), row.get("gold_label")
        else:
            images = row.get("images") or [row.get("image")]
            known = {"document": "+".join(map(str, images))}
            sentence, label = require(row, "sentence", str, where), row.get("label")
        meta = {name: value for name, value in known.items() if value is not None}
        return {"captions": [sentence], **_labels(label, where), "meta": meta}

    def sample(self, record: Record) -> Sample | Drop:
        if record.data[1].get("gold_label") == UNSURE:
            return Drop(f"no gold label ({UNSURE!r})")
        return super().sample(record)

    def _places(self, row: dict[str, Any], where: str) -> dict[str, str]:
        if FLICKR in row:
            flickr = str(require(row, FLICKR, (str, int), where)).removesuffix(".jpg")
            return {IMAGE: self.named(self.image_name, where, id=flickr, subset="")}
        listed = row["images"] if "images" in row else [require(row, "image", str, where)]
        if (
            not isinstance(listed, list)
            or not all(isinstance(place, str) for place in listed)
            or len(listed) not in (1, 2)
        ):
            raise MalformedError("images must be one or two names of files", where, repr(listed)[:60])
        return {IMAGE: listed[0]} if len(listed) == 1 else {"left": listed[0], "right": listed[1]}


def _labels(label: Any, where: str) -> Sample:
    """1 and 0 for true and false, else the name of the class; none for a hidden test set."""
    if isinstance(label, str) and label.strip() and label.strip().lower() not in TRUTH:
        return {"labels": {"label": label.strip()}}
    return truth_of({"label": label}, where)
