"""Which texts and images belong together: those of the same image are never a wrong pair."""

from __future__ import annotations

from collections.abc import Iterable

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import digest
from workbench.sequences.sequence import Sample, Sequence

MATCHED = "matched"  # label of a sample: 1 = its text belongs to its image, 0 = exchanged
WINDOW = "window"  # key of a sample that is a segment of a video: [from, to] in seconds, or None: all of it
IMAGE = "image_id"  # label of a sample: a number that equal images share


def image_id(sample: Sample) -> int:
    """A 63-bit number of the sample's image: from its bytes' hash if the corpus has one, else from its key."""
    known = sample.get("meta", {}).get("sha256")
    name = known if known else f"{sample.get('corpus', '')}/{sample['key']}"
    return digest("image", str(name)) >> 65


def segment_id(sample: Sample) -> int:
    """The number of the segment of a video that the sample is, if it is one: another time has another number."""
    number, window = image_id(sample), sample.get(WINDOW)
    return number if window is None else digest("segment", number, *window) >> 65


def labelled(sample: Sample, name: str, value: int) -> Sample:
    """A shallow copy of the sample with one more label."""
    return {**sample, "labels": {**sample.get("labels", {}), name: value}}


def check_true_pair(sequence: Sequence, streams: Iterable[str], objective: str, pair: str) -> None:
    """
    Args:
        streams: those of the pair.
        objective: its name, for the message.
        pair: description of the pair.

    Raises:
        WorkbenchError: the text and the medium were exchanged, or one of them has no rows.
    """
    if sequence.labels.get(MATCHED) == 0 or not all(map(sequence.length, streams)):
        raise WorkbenchError(
            f"objective {objective!r}: sequence {sequence.key!r} is not a true pair of {pair}; remove such samples "
            "from "
            "the corpus, and put an itm that exchanges pairs in a separate task"
        )
