"""Stages on images and their captions: captions are stripped, empty ones removed, and filters applied. Each filter is
off unless its option is set.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from pipelines.readers.reader import Drop
from workbench.core.errors import WorkbenchError
from workbench.core.images import FAILURES, open_image
from workbench.core.options.bounds import CountOrZero, Name, Ratio
from workbench.corpora.schema.schema import marks_of, parallel_fields
from workbench.sequences.sequence import Sample


def clean_captions(sample: Sample) -> Sample | Drop:
    """Strips captions and removes empty ones; drops an image without any text or class.

    Questions count as text. Labels count for an image that never had captions: they are its classes. They do not count
    if all captions were empty, as they may have been labels of the sentence (NLVR, SNLI-VE).
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
    """The sample without the captions of these numbers, and without their links, boxes and times."""
    parallel = {"captions", *(field.name for field in (*marks_of("captions"), *parallel_fields("captions")))}
    return {
        name: [one for i, one in enumerate(value) if i not in left_out] if name in parallel else value
        for name, value in sample.items()
    }


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "!=": operator.ne,
    "=": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_CONDITION = re.compile(r"\s*([^\s<>=!]+)\s*(>=|<=|!=|=|>|<)\s*(.*?)\s*")


@dataclass(frozen=True)
class Where:
    """Drops samples whose `meta` (or labels) does not meet a condition: `similarity>=0.3`, `language=en`.

    Two numbers are compared as numbers; a sample without the field is dropped.
    """

    condition: Name

    def __post_init__(self) -> None:
        self.parts()

    def parts(self) -> tuple[str, str, str]:
        """The field, the comparison, the value.

        Raises:
            WorkbenchError: it is not a condition, or compares the order of texts.
        """
        found = _CONDITION.fullmatch(self.condition)
        if found is None:
            raise WorkbenchError(
                f"--where {self.condition!r} is not a condition; allowed: a field of the records' meta, one of "
                f"{', '.join(COMPARISONS)}, and a value: similarity>=0.3, language=en"
            )
        name, sign, value = found.groups()
        if sign not in ("=", "!=") and _number(value) is None:
            raise WorkbenchError(f"--where {self.condition!r}: {sign} compares numbers; {value!r} is not a number")
        return name, sign, value

    def __call__(self, sample: Sample) -> Sample | Drop:
        name, sign, value = self.parts()
        held = {**sample.get("labels", {}), **sample.get("meta", {})}
        if held.get(name) is None:
            return Drop(f"no {name}")
        number, wanted = _number(held[name]), _number(value)
        if number is None or wanted is None:
            if sign not in ("=", "!="):
                return Drop(f"{name} is no number")
            return sample if COMPARISONS[sign](str(held[name]), value) else Drop(f"not {self.condition}")
        return sample if COMPARISONS[sign](number, wanted) else Drop(f"not {self.condition}")


@dataclass(frozen=True)
class CaptionWords:
    """Drops captions with fewer or more words (separated by spaces), and samples without any left."""

    least: CountOrZero = 0
    most: CountOrZero | None = None

    def __post_init__(self) -> None:
        if self.most is not None and self.least > self.most:
            raise WorkbenchError(
                f"--min-words {self.least} is more than --max-words {self.most}: no caption has both; allowed: at "
                "most the "
                "same number"
            )

    def __call__(self, sample: Sample) -> Sample | Drop:
        counts = [len(caption.split()) for caption in sample.get("captions", ())]
        if not counts and not self.least:
            return sample
        wrong = {i for i, n in enumerate(counts) if n < self.least or (self.most is not None and n > self.most)}
        if len(wrong) == len(counts) and not sample.get("questions"):
            return Drop("no caption of so many words")
        return without_captions(sample, wrong) if wrong else sample


@dataclass(frozen=True)
class AspectRatio:
    """Drops images whose longer side is more than `most` times the shorter one; `CheckImage` drops damaged ones."""

    most: Ratio

    def __call__(self, sample: Sample) -> Sample | Drop:
        if "image" not in sample:
            return sample
        try:
            width, height = open_image(sample["image"]).size
        except FAILURES:
            return sample
        return sample if max(width, height) <= self.most * min(width, height) else Drop("too long or too wide")


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
