"""Splitting a sample's text in two segments that follow each other, for sentence pairs (nsp, sop).

A prepared sample has its first segment in `text`, `spans`, `mask_spans` and its second in `sample["second"]`, a dict
with the same keys and `follows`: whether it is what came after the first in the text.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from workbench.sequences.sequence import Sample

_SENTENCE = re.compile(r"[.!?…]+[\"'”’»)\]]*\s+|[。！？；]+[”’」』）]*\s*|\s*\n\s*")
_SPACE = re.compile(r"\s+")
_FIELDS = ("spans", "mask_spans")


def in_two(sample: Sample, rng: np.random.Generator) -> Sample:
    """The sample split at a random sentence end, else at a random space, never inside a mention.

    The same sample comes back where it is split already; without `second` where it cannot be split.
    """
    if "second" in sample:
        return sample
    text = sample.get("text", "")
    points = _points(_SENTENCE, sample) or _points(_SPACE, sample)
    if not points:
        return sample
    cut = points[int(rng.integers(len(points)))]
    first, second = dict(sample), {"text": text[cut:], "follows": True}
    first["text"] = text[:cut]
    for field in _FIELDS:
        if field in sample:
            first[field] = [m for m in sample[field] if m[1] <= cut]
            second[field] = [[m[0] - cut, m[1] - cut, *m[2:]] for m in sample[field] if m[0] >= cut]
    return {**first, "second": second}


def swapped(sample: Sample) -> Sample:
    """The prepared sample with its segments in the other order."""
    second: dict[str, Any] = sample["second"]
    result = {k: v for k, v in sample.items() if k not in _FIELDS}
    moved = {"text": sample["text"], "follows": False, **{f: sample[f] for f in _FIELDS if f in sample}}
    result |= {"text": second["text"], "second": moved} | {f: second[f] for f in _FIELDS if f in second}
    return result


def labelled(sample: Sample, name: str, label: int) -> Sample:
    """A copy of the sample with one more label (-100: none)."""
    return {**sample, "labels": {**sample.get("labels", {}), name: label}}


def _points(pattern: re.Pattern[str], sample: Sample) -> list[int]:
    text = sample.get("text", "")
    mentions = [m for field in _FIELDS for m in sample.get(field, ())]
    points = [m.end() for m in pattern.finditer(text)]
    return [p for p in points if text[:p].strip() and text[p:].strip() and not any(m[0] < p < m[1] for m in mentions)]
