"""Captions without white space around them, and no empty ones."""

from __future__ import annotations

from collections.abc import Collection

from pipelines.readers.reader import Drop
from workbench.corpora.schema.schema import along, marks_of
from workbench.sequences.sequence import Sample


def clean_captions(sample: Sample) -> Sample | Drop:
    """Strips captions and takes out empty ones; drops an image of which nothing is said.

    Questions say something, and so do labels, of an image without captions its classes. Where all captions were empty
    labels are no reason to keep it: they may have been those of the sentence (NLVR, SNLI-VE).
    """
    wordless = not sample.get("captions")
    if "captions" in sample and "caption_spans" not in sample:
        empty = {i for i, caption in enumerate(sample["captions"]) if not caption.strip()}
        sample = without_captions(sample, empty) if empty else sample
        sample["captions"] = [caption.strip() for caption in sample["captions"]]
    if sample.get("captions") or sample.get("questions") or (wordless and sample.get("labels")):
        return sample
    return Drop("no caption")


def without_captions(sample: Sample, left_out: Collection[int]) -> Sample:
    """The sample without the captions of these numbers, and without what belongs to them: links, boxes, times."""
    parallel = {"captions", *(field.name for field in (*marks_of("captions"), *along("captions")))}
    return {
        name: [one for i, one in enumerate(value) if i not in left_out] if name in parallel else value
        for name, value in sample.items()
    }
